// @ts-check
/**
 * JSON and text for reading, with a button that copies it.
 *
 *   codeBlock(job.payload, "Payload")      a value as JSON, or a text as it is; long ones are cut, with a button for all
 *   copyButton("Copy as curl", () => text)
 */
import { button, fill, h } from "../dom.js";
import { bytes, json } from "../format.js";
import { toast } from "./toast.js";

const SHOWN = 20_000;

/** @param {unknown} value @param {string} label */
export function codeBlock(value, label) {
  const text = typeof value === "string" ? value : json(value);
  const box = h("pre", { class: "code", tabindex: "0", "aria-label": label }, text.slice(0, SHOWN));
  if (text.length <= SHOWN) return box;
  const made = h("div", { class: "stack" });
  return fill(made, box, button(`Show all ${bytes(text.length)}`, { tone: "tiny", onclick: () => fill(made, h("pre", { class: "code", tabindex: "0", "aria-label": label }, text)) }));
}

/** @param {string} text @param {() => string} what @param {Record<string, any>} [props] */
export function copyButton(text, what, props = {}) {
  return button(text, { icon: "copy", ...props, onclick: async () => {
    const done = await copy(what());
    toast(done ? "Copied" : "The browser did not let this page copy", done ? "good" : "bad");
  } });
}

/** Plain HTTP has no clipboard API. @param {string} text */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = h("textarea", { value: text, class: "visually-hidden", "aria-hidden": "true" });
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}
