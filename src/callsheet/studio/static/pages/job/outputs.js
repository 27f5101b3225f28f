// @ts-check
/** What attempts left: logs as text, files to download. Both are read when they are first looked at. */
import { CallsheetError, get, raw } from "../../api.js";
import { codeBlock } from "../../components/code.js";
import { select } from "../../components/layout.js";
import { empty, skeleton, trouble } from "../../components/states.js";
import { button, fill, h, icon } from "../../dom.js";
import { bytes } from "../../format.js";

/** @param {string} id @param {AbortSignal} signal */
export function logView(id, signal) {
  const element = h("div", { class: "stack" });
  const body = h("div");
  /** @param {string} attempt */
  const read = async (attempt) => {
    fill(body, skeleton(3));
    try {
      const text = await (await raw(`/v1/jobs/${encodeURIComponent(id)}/log`, { query: { attempt }, signal })).text();
      fill(body, text ? codeBlock(text, "Log") : empty("No log", "Workers over HTTP send one; what tasks note is among the events."));
    } catch (error) {
      if (!signal.aborted) fill(body, error instanceof CallsheetError && error.status === 404 ? empty("No log", "This server keeps no logs of attempts; what tasks note is among the events.") : trouble(error, () => read(attempt)));
    }
  };
  return {
    element,
    /** @param {any[]} attempts */
    load(attempts) {
      const last = attempts[attempts.length - 1];
      const choice = select(attempts.map((attempt) => [attempt.attempt_id, `Attempt ${attempt.attempt}`]), last?.attempt_id ?? "", { "aria-label": "Attempt", onchange: () => read(choice.value) });
      fill(element, attempts.length ? h("div", { class: "row" }, h("div", { class: "narrow" }, choice), button("Read again", { icon: "retry", onclick: () => read(choice.value) })) : null, body);
      read(last?.attempt_id ?? "");
    },
  };
}

/** @param {string} id @param {AbortSignal} signal */
export function filesView(id, signal) {
  const element = h("div");
  return {
    element,
    /** @param {any} job */
    async load(job) {
      fill(element, skeleton(2));
      try {
        const { artifacts } = await get(`/v1/jobs/${encodeURIComponent(id)}/artifacts`, { signal });
        fill(element, artifacts.length ? h("ul", { class: "files" }, artifacts.map((/** @type {any} */ file) => one(id, file))) : none(job));
      } catch (error) {
        if (!signal.aborted) fill(element, error instanceof CallsheetError && [404, 503].includes(error.status) ? none(job) : trouble(error, () => this.load(job)));
      }
    },
  };
}

/** @param {any} job */
function none(job) {
  return empty("No files", job.status === "done" ? "This job left none." : "Files of a job can be had when it is done.");
}

/** @param {string} id @param {any} file */
function one(id, file) {
  const path = `/v1/jobs/${encodeURIComponent(id)}/artifacts/${file.name.split("/").map(encodeURIComponent).join("/")}`;
  return h("li", { class: "row" }, icon("file"), h("a", { href: path, download: file.name, class: "wrap" }, file.name), h("span", { class: "small quiet" }, `${bytes(file.bytes)} · ${file.content_type}`));
}
