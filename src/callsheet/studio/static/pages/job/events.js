// @ts-check
/** A job's events as they come: a window on a list that may be long, with a filter by type. */
import { windowList } from "../../components/window_list.js";
import { select } from "../../components/layout.js";
import { openDialog } from "../../components/dialog.js";
import { codeBlock } from "../../components/code.js";
import { h } from "../../dom.js";
import { clock, moment } from "../../format.js";

const ROW_PX = 30;
/** @type {Record<string, string>} */
const TONES = { done: "good", error: "bad", canceled: "off", retrying: "warn", lease_lost: "warn", warning: "warn", running: "run", stage: "run" };

/** @param {AbortSignal} signal */
export function eventView(signal) {
  /** @type {Set<string>} */
  const types = new Set();
  const list = windowList("Events of this job", ROW_PX, row);
  const choice = select([["", "All events"]], "", { "aria-label": "Type of event", onchange: () => list.filter(choice.value ? (/** @type {import("../../api.js").JobEvent} */ event) => event.type === choice.value : null) });
  signal.addEventListener("abort", () => list.clear());
  return {
    element: h("div", { class: "stack" }, h("div", { class: "row" }, h("div", { class: "narrow" }, choice)), list.element),
    /** @param {import("../../api.js").JobEvent} event */
    push(event) {
      if (!types.has(event.type) && types.size < 40) {
        types.add(event.type);
        choice.append(h("option", { value: event.type }, event.type));
      }
      list.push(event);
    },
  };
}

/** @param {import("../../api.js").JobEvent} event */
function row(event) {
  return h("div", { class: "event" },
    h("span", { class: "mono small quiet", title: moment(event.ts) }, clock(event.ts)),
    h("button", { type: "button", class: "eventtype", data: { tone: TONES[event.type] ?? "" }, title: "Show all of it", onclick: () => openDialog(`${event.type} · ${event.id}`, codeBlock(event, "Event")) }, event.type),
    h("span", { class: "clip" }, words(event)));
}

/** What an event says, on one line. @param {import("../../api.js").JobEvent} event */
export function words(event) {
  const { data } = event;
  const said = typeof data === "object" && data !== null ? (data.message ?? data.text ?? data.token ?? data.reason ?? data.code) : data;
  const text = said === undefined || said === null ? (data && Object.keys(data).length ? JSON.stringify(data) : "") : typeof said === "string" ? said : JSON.stringify(said);
  return [event.step, event.type === "progress" ? `${event.progress} %` : "", text.slice(0, 500)].filter(Boolean).join(" · ");
}
