// @ts-check
/**
 * Statuses as badges, and progress as a bar. The word is always there: colour alone says nothing.
 *
 *   badge("running")      <span class="badge" data-tone="run">Running</span>
 *   labelOf("error")      Failed
 *   toneOf("dead_letter") wait, run, good, bad, warn, off or dead
 *   bar(42, "run")        a progress bar with its label for screen readers
 */
import { h } from "../dom.js";

/** @type {Record<string, [string, string]>} Word of the API → tone, and what is shown. */
const WORDS = {
  queued: ["wait", "Queued"], running: ["run", "Running"], done: ["good", "Done"], succeeded: ["good", "Done"],
  error: ["bad", "Failed"], failed: ["bad", "Failed"], dead_letter: ["dead", "Dead letter"], canceled: ["off", "Canceled"],
  retried: ["warn", "Retried"], dead_lettered: ["dead", "Gave up"], released: ["off", "Handed back"], lease_lost: ["warn", "Lease lost"],
  uploading: ["wait", "Uploading"], processing: ["run", "In work"], ready: ["good", "Ready"],
  pending: ["wait", "Pending"], delivering: ["run", "Delivering"], delivered: ["good", "Delivered"],
  active: ["good", "Active"], draining: ["warn", "Draining"], revoked: ["bad", "Revoked"], expired: ["off", "Expired"], unenrolled: ["off", "By key"],
  open: ["bad", "Left alone"], disabled: ["off", "Disabled"], enabled: ["good", "Enabled"], silent: ["bad", "Silent"],
};

/** @param {string} word */
export const toneOf = (word) => WORDS[word]?.[0] ?? "wait";

/** What is shown for a status. @param {string} word */
export const labelOf = (word) => WORDS[word]?.[1] ?? word;

/** @param {string} word A status. @param {string} [text] Shown instead of its usual word. */
export function badge(word, text) {
  return h("span", { class: "badge", data: { tone: toneOf(word), status: word } }, text ?? labelOf(word));
}

/** @param {number} percent @param {string} [tone] @param {string} [label] */
export function bar(percent, tone = "run", label = "Progress") {
  const value = Math.max(0, Math.min(100, percent));
  const props = { class: "bar", data: { tone }, role: "progressbar", "aria-label": label, "aria-valuenow": Math.floor(value), "aria-valuemin": 0, "aria-valuemax": 100 };
  return h("div", props, h("i", { style: { width: `${value}%` } }));
}
