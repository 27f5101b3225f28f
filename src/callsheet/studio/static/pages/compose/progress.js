// @ts-check
/**
 * A live job as it goes on: its phases, percent, message and warnings, and whether the connection stands.
 *
 *   const shown = progressView(announce, foot);   stage.append(shown.element)
 *   shown.take(event);   shown.lost(2000);   shown.state.status
 *
 * Events may come faster than a screen can show: it is drawn once in a frame.
 */
import { bar } from "../../components/badge.js";
import { PHASES, stageTrack } from "../../components/stage_track.js";
import { note } from "../../components/states.js";
import { fill, h } from "../../dom.js";
import { percent, plural } from "../../format.js";
import { merged, newState } from "../../live.js";

/** The contract's words for a job's status, and the studio's. @type {Record<string, string>} */
const STATES = { Queued: "queued", Running: "running", Done: "succeeded", Failed: "failed", Canceled: "canceled" };
/** @type {Record<string, string>} */
const TONES = { Failed: "bad", Canceled: "off", Done: "good" };

/** @param {(text: string) => void} announce Says something to screen readers. @param {Node} foot What stands below. */
export function progressView(announce, foot) {
  let state = newState();
  let [waiting, stopping] = [false, false];
  const [track, head, line, warnings] = [h("div"), h("div", { class: "progresshead" }), h("div"), h("div")];
  const connection = h("p", { class: "small quiet", data: { connection: "" }, hidden: true });

  const draw = () => {
    waiting = false;
    fill(track, stageTrack(Object.values(PHASES), PHASES[state.phase] ?? "", STATES[state.status] ?? "running"));
    fill(head, h("span", { class: "figure-small" }, percent(state.percent)), h("span", { class: "quiet wrap", data: { message: "" } }, standing(state, stopping)));
    fill(line, bar(state.percent, TONES[state.status] ?? "run", "Progress of the video"));
    fill(warnings, warningNote(state.warnings));
  };
  const soon = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(draw);
  };
  draw();
  return {
    element: h("div", { class: "stack", data: { live: "" } }, track, head, line, warnings, connection, foot),
    get state() {
      return state;
    },
    /** @param {import("../../live.js").LiveEvent} event */
    take(event) {
      const before = state;
      state = merged(state, event);
      if (event.type === "warning") state.message = before.message; // it stands among the warnings
      if (event.type === "error") state.message = `An attempt failed and is tried again: ${event.data.message ?? ""}`;
      if (event.type === "warning") announce(`Warning: ${event.data.message ?? ""}`);
      else if (state.phase !== before.phase && PHASES[state.phase]) announce(`Now: ${PHASES[state.phase]}`);
      connection.hidden = true;
      soon();
    },
    /** @param {number} ms */
    lost(ms) {
      connection.textContent = `Connection lost; trying again in ${ms / 1000} s. The job goes on meanwhile.`;
      connection.hidden = false;
      announce("Connection lost");
    },
    /** @param {boolean} now Whether the job was told to stop. */
    stop(now) {
      stopping = now;
      soon();
    },
    draw,
  };
}

/** @param {string[]} texts */
export function warningNote(texts) {
  return texts.length ? note("warn", plural(texts.length, "warning"), h("ul", { class: "warnings", tabindex: "0", "aria-label": "Warnings" }, texts.map((text) => h("li", null, text)))) : null;
}

/** One sentence for how it stands. @param {import("../../live.js").LiveState} state @param {boolean} stopping */
function standing(state, stopping) {
  if (state.ended) return "";
  if (stopping) return "Told to stop";
  return state.status === "Queued" ? "Waits for a worker" : state.message || PHASES[state.phase] || "Begins";
}
