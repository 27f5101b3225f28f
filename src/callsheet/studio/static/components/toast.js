// @ts-check
/**
 * Short words in the corner, also read aloud.
 *
 *   toast("Canceled 3 jobs", "good");   toastError(error, "The job was not canceled")
 */
import { h, iconButton } from "../dom.js";
import { describe } from "./states.js";

const box = h("div", { class: "toasts", role: "status", "aria-live": "polite" });
document.body.append(box);

/** @param {import("../dom.js").Children} text @param {"good" | "bad" | ""} [tone] @param {number} [forMs] */
export function toast(text, tone = "", forMs = tone === "bad" ? 12_000 : 5_000) {
  const made = h("div", { class: "toast", data: { tone } }, h("div", { class: "text" }, text), iconButton("Dismiss", "close", { onclick: () => made.remove() }));
  box.append(made);
  while (box.children.length > 4) box.firstElementChild?.remove();
  setTimeout(() => made.remove(), forMs);
  return made;
}

/** @param {unknown} error @param {string} [what] */
export function toastError(error, what) {
  const summary = describe(error);
  return toast([h("strong", null, what ?? summary.title), h("div", null, what ? summary.text || summary.title : summary.text)], "bad");
}
