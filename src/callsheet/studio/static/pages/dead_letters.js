// @ts-check
/** Dead letters: what gave up and why; look into one, replay or delete it, or many by a filter. */
import { del, get, pause, post } from "../api.js";
import { badge } from "../components/badge.js";
import { codeBlock } from "../components/code.js";
import { confirm, openDialog } from "../components/dialog.js";
import { card, facts, field, pageHead, select } from "../components/layout.js";
import { moment } from "../components/moment.js";
import { empty, note, skeleton, trouble } from "../components/states.js";
import { makeTable } from "../components/table.js";
import { toast, toastError } from "../components/toast.js";
import { button, fill, h, link } from "../dom.js";
import { number, plural, shortId } from "../format.js";
import { setQuery } from "../router.js";
import { may } from "../session.js";

/**
 * @typedef {object} DeadLetter
 * @property {string} job_id
 * @property {string} task
 * @property {string} queue
 * @property {string} status
 * @property {number} attempts
 * @property {number | null} ended_at
 * @property {{code: string, message: string} | null} error
 * @property {string} error_class
 * @property {string} advice
 */

const PAGE = 50;
/** @type {[string, string][]} */
const WHICH = [["dead_letter", "Dead letters"], ["failed", "Failed at once"], ["both", "Both"]];
const FILTERS = ["status", "task", "queue", "error_code"];

/** @param {import("../router.js").View} view */
export default async function deadLetters(view) {
  const writer = may(view.session, "jobs:write");
  /** @type {Record<string, string>} */
  const filter = Object.fromEntries(FILTERS.map((name) => [name, view.query.get(name) ?? (name === "status" ? "dead_letter" : "")]));
  const list = h("div");
  const foot = h("div", { class: "row pad" });
  const running = h("div", { class: "stack" });
  const table = makeTable("Dead letters", columns(writer, (letter) => look(letter, writer, read)), (/** @type {DeadLetter} */ letter) => letter.job_id);
  /** @type {string | null} */
  let next = null;
  let reading = new AbortController();
  view.signal.addEventListener("abort", () => reading.abort());
  const more = button("Older", { onclick: () => page(true) });

  async function read() {
    if (view.signal.aborted) return;
    reading.abort();
    reading = new AbortController();
    if (!table.body.childElementCount) fill(list, h("div", { class: "pad" }, skeleton(5)));
    await page(false);
  }
  /** @param {boolean} on */
  async function page(on) {
    const { signal } = reading;
    try {
      const told = await get("/v1/dead-letters", { query: { ...filter, limit: PAGE, cursor: on ? next : null }, signal });
      next = told.next;
      if (on) table.append(told.dead_letters);
      else table.rows(told.dead_letters);
      const some = table.body.childElementCount > 0;
      fill(list, some ? table.element : empty("No dead letters", "What gives up after its last attempt is kept here, with the reason and what to do next."));
      fill(foot, next ? more : null);
    } catch (error) {
      if (!signal.aborted) fill(list, trouble(error, read));
    }
  }

  /** @param {"replay" | "purge"} action */
  async function many(action) {
    const told = action === "replay" ? "All that fit the filters are put back into their queues, with fresh attempts." : "All that fit the filters are deleted for good.";
    if (!(await confirm(action === "replay" ? "Replay all of these?" : "Delete all of these?", told, action === "replay" ? "Replay them" : "Delete them", action === "purge" ? "danger" : "first"))) return;
    try {
      const chosen = Object.entries(filter).filter(([, value]) => value);
      const begun = await post(`/v1/dead-letters/${action}`, { ...Object.fromEntries(chosen), ...(action === "purge" && chosen.length === 1 && { all: true }) });
      await follow(begun.operation_id);
    } catch (error) {
      if (!view.signal.aborted) toastError(error, "Nothing was begun");
    }
  }
  /** @param {string} id */
  async function follow(id) {
    const sofar = h("span");
    const stop = button("Stop", { tone: "tiny", onclick: () => post(`/v1/operations/${id}/stop`).catch((error) => toastError(error, "It goes on")) });
    while (!view.signal.aborted) {
      const now = await get(`/v1/operations/${id}`, { signal: view.signal });
      if (now.status !== "running") {
        fill(running);
        toast(`${plural(now.done, "job")} ${now.action === "purge" ? "deleted" : "replayed"}${now.refused ? `, ${number(now.refused)} refused: ${now.why}` : ""}`, now.refused ? "" : "good");
        return read();
      }
      sofar.textContent = `${plural(now.done, "job")} so far`;
      if (!running.childElementCount) fill(running, note("run", now.action === "purge" ? "Deleting" : "Replaying", sofar, stop));
      await pause(500, view.signal);
    }
    return undefined;
  }

  let typing = 0;
  /** @param {string} name @param {string} value */
  const set = (name, value) => view.signal.aborted || ((filter[name] = value), setQuery({ [name]: name === "status" && value === "dead_letter" ? "" : value }), read());
  /** @param {string} name @param {string} placeholder */
  const text = (name, placeholder) => h("input", { class: "input", type: "search", name, value: filter[name], placeholder, maxlength: "200", oninput: (/** @type {Event} */ event) => {
    clearTimeout(typing);
    typing = setTimeout(() => set(name, /** @type {HTMLInputElement} */ (event.target).value.trim()), 250);
  } });
  const actions = writer ? [button("Replay all shown here", { icon: "retry", onclick: () => many("replay") }), button("Delete all", { icon: "trash", tone: "danger", onclick: () => many("purge") })] : [];
  view.main.append(
    pageHead("Dead letters", "Jobs that gave up: why, and what to do next.", ...actions), running,
    card("", {}, h("form", { class: "filters wide-filters", role: "search", "aria-label": "Filters", onsubmit: (/** @type {Event} */ event) => event.preventDefault() },
      field("Which", select(WHICH, filter.status ?? "dead_letter", { name: "status", onchange: (/** @type {Event} */ event) => set("status", /** @type {HTMLSelectElement} */ (event.target).value) })),
      field("Kind", text("task", "transcode …")), field("Queue", text("queue", "default")), field("Error code", text("error_code", "timeout …")))),
    h("section", { class: "card flush", "aria-label": "Dead letters" }, list, foot));
  await read();
}

/** @param {boolean} writer @param {(letter: DeadLetter) => unknown} open @returns {import("../components/table.js").Column<DeadLetter>[]} */
function columns(writer, open) {
  return [
    { name: "Status", cell: (letter) => badge(letter.status), class: "extra" },
    { name: "Job", cell: (letter) => h("div", { class: "jobcell" }, link(`/studio/jobs/${letter.job_id}`, { class: "open clip" }, letter.task), h("span", { class: "mono small quiet clip", title: letter.job_id }, shortId(letter.job_id))) },
    { name: "Why", cell: (letter) => h("div", { class: "jobcell" }, h("strong", { class: "clip" }, letter.error?.code ?? letter.error_class), h("span", { class: "small quiet clip why", title: letter.error?.message ?? "" }, letter.error?.message ?? "")) },
    { name: "Ended", cell: (letter) => moment(letter.ended_at), class: "nowrap extra" },
    { name: "Actions", hidden: true, cell: (letter) => button(writer ? "Inspect" : "Look", { tone: "tiny", onclick: () => open(letter) }), class: "num" },
  ];
}

/** @param {DeadLetter} letter @param {boolean} writer @param {() => unknown} changed */
async function look(letter, writer, changed) {
  const whole = await get(`/v1/dead-letters/${letter.job_id}`).catch((error) => (toastError(error, "It cannot be read"), null));
  if (!whole) return;
  /** @param {() => Promise<unknown>} what @param {string} said */
  const act = async (what, said) => {
    try {
      await what();
      toast(said, "good");
      box.close();
      changed();
    } catch (error) {
      toastError(error, "Nothing was changed");
    }
  };
  const box = openDialog(letter.task, [
    note("warn", whole.error_class.replace("_", " "), whole.advice),
    facts([["Error", whole.error?.code], ["Message", whole.error?.message], ["Attempts", String(whole.attempts ?? "")], ["Queue", whole.queue], ["Ended", moment(whole.ended_at)]]),
    whole.can_replay ? "" : h("p", { class: "quiet" }, "It cannot be replayed: a copy would not know the limit of its concurrency key. Send it again."),
    codeBlock(whole.payload, "Payload"),
    h("div", { class: "actions" }, link(`/studio/jobs/${letter.job_id}`, { class: "button plain", onclick: () => box.close() }, "Open the job"),
      writer ? button("Delete", { tone: "danger", onclick: () => act(() => del(`/v1/dead-letters/${letter.job_id}`), "Deleted") }) : null,
      writer && whole.can_replay ? button("Replay", { icon: "retry", tone: "first", onclick: () => act(() => post(`/v1/dead-letters/${letter.job_id}/replay`), "It is queued again") }) : null),
  ], { class: "wide" });
}
