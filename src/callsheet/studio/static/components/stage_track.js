// @ts-check
/**
 * Where a job is among its stages: dots on a line, each with its name; those behind are done.
 *
 *   stageTrack(["fetching", "processing", "uploading"], "processing", "running")
 */
import { h } from "../dom.js";

/** @param {string[]} stages @param {string} at The stage it is in; '' for none yet. @param {string} state */
export function stageTrack(stages, at, state) {
  const place = state === "succeeded" ? stages.length : stages.indexOf(at);
  const bad = state === "failed" || state === "dead_letter" || state === "canceled";
  return h("ol", { class: "track", "aria-label": "Stages" }, stages.map((stage, n) => {
    const how = n < place ? "done" : n === place ? (bad ? "bad" : state === "running" ? "now" : "next") : "next";
    /** @type {Record<string, string>} */
    const words = { done: "done", now: "now", bad: "ended here", next: "to come" };
    return h("li", { data: { how }, ...(how === "now" && { "aria-current": "step" }) }, h("span", { class: "name" }, stage), h("span", { class: "visually-hidden" }, ` (${words[how]})`));
  }));
}
