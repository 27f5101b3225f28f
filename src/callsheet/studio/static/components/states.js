// @ts-check
/**
 * What a page or a card shows while there is nothing to show.
 *
 *   empty("No jobs yet", "Send one with POST /v1/jobs.", button(…))
 *   trouble(error, () => reload())      what happened, what to do, the request's id
 *   skeleton(5)                          grey lines while it loads
 *   note("warn", "Held back", "Its queue is paused.")
 */
import { CallsheetError, isAway } from "../api.js";
import { button, h, icon } from "../dom.js";

/** @param {string} title @param {import("../dom.js").Children} text @param {...import("../dom.js").Child} actions */
export function empty(title, text, ...actions) {
  return h("div", { class: "state", data: { state: "empty" } }, icon("empty"), h("h2", null, title), h("p", null, text), actions.length ? h("div", { class: "row" }, ...actions) : null);
}

/** @param {unknown} error @param {() => void} [again] */
export function trouble(error, again) {
  const summary = describe(error);
  return h("div", { class: "state bad", role: "alert", data: { state: "error" } },
    icon("alert"), h("h2", null, summary.title), h("p", { class: "wrap" }, summary.text),
    summary.id ? h("p", { class: "small quiet" }, "Request ", h("code", null, summary.id)) : null,
    again ? button("Try again", { icon: "retry", onclick: again }) : null);
}

/** An error in words: what happened, and what to do. @param {unknown} error @returns {{title: string, text: string, id: string}} */
export function describe(error) {
  if (!(error instanceof CallsheetError)) return { title: "Something broke in this page", text: error instanceof Error ? error.message : String(error), id: "" };
  if (isAway(error)) return { title: "The server does not answer", text: "Nothing was changed as far as this page knows; try again when it is back.", id: error.requestId };
  /** @type {Record<number, string>} */
  const titles = { 401: "You are not signed in", 403: "This key may not do that", 404: "Not found", 409: "Not in this state", 413: "Too large", 422: "The server does not take this", 429: "Too much at once" };
  return { title: titles[error.status] ?? "The server refused", text: sentence(error.detail), id: error.requestId };
}

/** @param {string} text */
function sentence(text) {
  return text ? text[0]?.toUpperCase() + text.slice(1) + (/[.!?…]$/.test(text) ? "" : ".") : "";
}

/** @param {number} [lines] */
export function skeleton(lines = 4) {
  const widths = ["92%", "78%", "85%", "64%", "88%", "71%"];
  return h("div", { class: "stack", "aria-busy": "true", "aria-label": "Loading", role: "status", data: { state: "loading" } },
    Array.from({ length: lines }, (_, n) => h("div", { class: "skeleton", style: { width: widths[n % widths.length] } })));
}

/** @param {"bad" | "warn" | "good" | "run" | ""} tone @param {string} title @param {...import("../dom.js").Child} body */
export function note(tone, title, ...body) {
  return h("div", { class: "note", data: { tone } }, h("strong", null, title), ...body.map((part) => h("div", { class: "wrap" }, part)));
}
