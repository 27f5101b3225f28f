// @ts-check
/**
 * Where a job is among its stages: dots on a line, each with its name; those behind are done.
 *
 *   stageTrack(["fetching", "processing", "uploading"], "processing", "running")
 */
import { h } from "../dom.js";

/** The phases of contract 004, and what is shown for them. @type {Record<string, string>} */
export const PHASES = { plan: "Script", tts: "Voice", visuals: "Pictures", compose: "Put together", render: "Render" };

/** @type {Record<string, string>} How a stage stands, for those who cannot see its colour. */
const WORDS = { done: "done", now: "now", bad: "failed here", off: "canceled here", next: "to come" };
/** @type {Record<string, string>} State of a job → how the stage stands that it is in. */
const HERE = { running: "now", failed: "bad", dead_letter: "bad", canceled: "off" };

/** @param {string[]} stages @param {string} at The stage it is in; '' for none yet. @param {string} state */
export function stageTrack(stages, at, state) {
  const place = state === "succeeded" ? stages.length : stages.indexOf(at);
  return h("ol", { class: "track", "aria-label": "Stages" }, stages.map((stage, n) => {
    const how = n < place ? "done" : (n === place && HERE[state]) || "next";
    return h("li", { data: { how }, ...(how === "now" && { "aria-current": "step" }) }, h("span", { class: "name" }, stage), h("span", { class: "visually-hidden" }, ` (${WORDS[how]})`));
  }));
}
