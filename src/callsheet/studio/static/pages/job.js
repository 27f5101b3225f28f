// @ts-check
/** One job: how it stands, what happened, and what can be done with it. Its events are followed live to its end. */
import { followOne, get, post } from "../api.js";
import { badge, bar, labelOf, toneOf } from "../components/badge.js";
import { codeBlock, copyButton } from "../components/code.js";
import { confirm } from "../components/dialog.js";
import { card, facts } from "../components/layout.js";
import { moment } from "../components/moment.js";
import { PHASES, stageTrack } from "../components/stage_track.js";
import { note, skeleton, trouble } from "../components/states.js";
import { tabs } from "../components/tabs.js";
import { toast, toastError } from "../components/toast.js";
import { button, fill, h, link } from "../dom.js";
import { percent, shortId } from "../format.js";
import { go, setQuery } from "../router.js";
import { may } from "../session.js";
import { attemptTimeline } from "./job/attempts.js";
import { eventView } from "./job/events.js";
import { filesView, logView } from "./job/outputs.js";

const MOVING = new Set(["queued", "running", "retrying", "requeued", "released", "waiting", "lease_lost", "done", "error", "canceled", "cancel_requested", "reset"]);
const READ_MS = 300;

/** @param {import("../router.js").View} view */
export default async function job(view) {
  const id = view.params.id ?? "";
  fill(view.main, skeleton(8));
  const page = new JobPage(view, id);
  await page.read();
  page.build();
  await followOne(id, (event) => page.heard(event), { signal: view.signal });
  await page.read();
}

class JobPage {
  /** @type {any} */
  job = null;
  /** @type {any} */
  state = null;
  /** @type {any} */
  attempts = null;
  /** @type {string[]} Stages that were seen, where the contract names none. */
  #seen = [];
  #message = "";
  #reading = 0;
  #resumable = false;

  /** @param {import("../router.js").View} view @param {string} id */
  constructor(view, id) {
    this.view = view;
    this.id = id;
    this.head = h("header", { class: "head" });
    this.progress = h("div", { class: "stack" });
    this.error = h("div", { class: "stack" });
    this.side = h("div", { class: "stack" });
    this.timeline = h("div");
    this.payload = h("div");
    this.result = h("div");
    this.events = eventView(view.signal);
    this.log = logView(id, view.signal);
    this.files = filesView(id, view.signal);
  }

  /** Read all of it again, and show it. */
  async read() {
    const { signal } = this.view;
    const path = `/v1/jobs/${encodeURIComponent(this.id)}`;
    const [job, state, attempts] = await Promise.all([get(path, { signal }), get(`${path}/state`, { signal }), get(`${path}/attempts`, { signal })]);
    const before = this.state?.status;
    [this.job, this.state, this.attempts] = [job, state, attempts];
    if (state.contract === "aura" && state.ended_at !== null && before !== state.status) this.#resumable = (await get(`/api/jobs/${encodeURIComponent(this.id)}`, { signal })).canResume;
    this.show();
    if (before && before !== state.status) this.view.announce(`The job is now ${state.status.replace("_", " ")}`);
  }

  build() {
    const { view } = this;
    const parts = tabs("What is known of it", [
      ["events", "Events", () => this.events.element],
      ["attempts", "Attempts", () => this.timeline],
      ["payload", "Payload", () => this.payload],
      ["result", "Result", () => this.result],
      ["log", "Log", () => (this.log.load(this.attempts.attempts), this.log.element)],
      ["files", "Files", () => (this.files.load(this.job), this.files.element)],
    ], view.query.get("tab") ?? "events", (tab) => setQuery({ tab: tab === "events" ? "" : tab }));
    fill(view.main,
      h("nav", { class: "crumbs", "aria-label": "Where this is" }, link("/studio/jobs", {}, "Jobs"), h("span", { "aria-hidden": "true" }, "/"), h("span", { class: "mono" }, shortId(this.id))),
      this.head,
      h("div", { class: "sided" }, h("div", { class: "stack" }, h("section", { class: "card", "aria-label": "Progress" }, this.progress), this.error, h("section", { class: "card", "aria-label": "Details" }, parts.element)), this.side));
  }

  show() {
    const { job, state } = this;
    this.view.title(`${job.task} ${shortId(this.id)}`);
    fill(this.head,
      h("div", { class: "titles" }, h("div", { class: "row" }, h("h1", { class: "wrap" }, job.task), badge(state.status), this.#ownWord()), h("p", { class: "mono small wrap" }, this.id)),
      h("div", { class: "actions" }, this.#actions()));
    this.#showProgress();
    fill(this.error, this.#errorNote());
    fill(this.side, this.#facts());
    fill(this.timeline, attemptTimeline(this.attempts, state));
    if (this.payload.dataset.known !== "yes") {
      this.payload.dataset.known = "yes";
      fill(this.payload, codeBlock(job.payload, "Payload"));
    }
    fill(this.result, job.result === null ? h("p", { class: "quiet" }, state.ended_at === null ? "There is none before it is done." : "It left no result.") : codeBlock(job.result, "Result"));
    this.view.main.dataset.status = state.status;
  }

  /** The contract's own word for the state, where it says more than ours. */
  #ownWord() {
    const { job, state } = this;
    const ours = [state.status, job.status].flatMap((word) => [word, labelOf(word).toLowerCase()]).concat(this.#stages()[0]);
    return !state.word || ours.includes(state.word.toLowerCase()) ? null : h("span", { class: "chip", title: `In the words of ${state.contract}` }, state.word);
  }

  #showProgress() {
    const { job, state } = this;
    const [stages, at] = this.#stages();
    fill(this.progress,
      h("div", { class: "progresshead" }, h("span", { class: "figure-small" }, percent(job.progress)), h("span", { class: "quiet clip" }, this.#message || this.#standing())),
      bar(job.progress, toneOf(state.status), "Progress of this job"),
      stages.length ? stageTrack(stages, at, state.status) : null);
  }

  /** The stages that are shown, and the one it is in. @returns {[string[], string]} */
  #stages() {
    const { job, state } = this;
    if (state.contract === "aura") return [Object.values(PHASES), PHASES[state.phase] ?? ""];
    return [state.stages ?? this.#seen, job.step];
  }

  /** One sentence for how it stands. */
  #standing() {
    const { job, state } = this;
    /** @type {Record<string, string>} */
    const waits = { delay: "Waits for its time", dependency: `Waits for ${state.blocked_by} other jobs`, slot: "Waits for a free slot of its kind", paused: "Its queue is paused" };
    if (state.waits) return waits[state.waits] ?? state.waits;
    if (state.status === "queued") return "Waits for a worker";
    if (state.status === "running") return state.cancel_requested_at ? "Told to stop" : job.step || "Runs";
    return job.cancel_reason ? `Canceled: ${job.cancel_reason}` : "";
  }

  #actions() {
    const { job, state } = this;
    const writer = may(this.view.session, "jobs:write");
    const curl = () => `curl -s ${location.origin}/v1/jobs/${this.id} -H "Authorization: Bearer $KEY"`;
    const again = () => `curl -s ${location.origin}/v1/jobs -H "Authorization: Bearer $KEY" -H 'Content-Type: application/json' -d ${quoted(JSON.stringify({ task: job.task, payload: job.payload }))}`;
    const gateway = state.contract === "redis_gateway";
    return [
      writer && state.can_cancel ? button("Cancel", { icon: "stop", tone: "danger", data: { act: "cancel" }, onclick: () => this.#cancel() }) : null,
      writer && this.#resumable ? button("Resume", { icon: "play", tone: "first", data: { act: "resume" }, onclick: () => this.#resume() }) : null,
      writer && state.can_retry ? button("Retry", { icon: "retry", tone: this.#resumable ? "" : "first", data: { act: "retry" }, onclick: () => this.#retry() }) : null,
      copyButton("Copy as curl", gateway ? again : curl),
    ];
  }

  async #cancel() {
    if (!(await confirm("Cancel this job?", this.state.status === "running" ? "Its worker is told to stop; it ends when it has." : "It ends at once.", "Cancel it", "danger"))) return;
    const path = this.state.contract === "aura" ? `/api/jobs/${this.id}/cancel` : `/v1/jobs/${this.id}/cancel`;
    await this.#tried(() => post(path, {}), "It was not canceled");
  }

  async #retry() {
    await this.#tried(async () => {
      const told = await post(`/v1/dead-letters/${this.id}/replay`);
      if (told.copied) go(`/studio/jobs/${told.replay_job_id}`);
      else go(`/studio/jobs/${this.id}`, { replace: true });
      toast(told.copied ? "A copy of it runs now" : "It is back in line", "good");
    }, "It was not retried");
  }

  async #resume() {
    await this.#tried(async () => {
      const told = await post(`/api/jobs/${this.id}/resume`);
      go(`/studio/jobs/${told.jobId}`);
      toast(`Goes on after ${told.lastCompletedStep}`, "good");
    }, "It was not resumed");
  }

  /** @param {() => Promise<unknown>} act @param {string} what */
  async #tried(act, what) {
    try {
      await act();
      await this.read();
    } catch (error) {
      if (!this.view.signal.aborted) toastError(error, what);
    }
  }

  #errorNote() {
    const { job, state } = this;
    if (!job.error) return null;
    const ended = state.ended_at !== null;
    const told = typeof job.error === "object" ? job.error : { message: String(job.error) };
    const words = [told.message, told.detail].filter(Boolean).map(String).join(" ");
    return h("section", { class: "card errorcard", data: { tone: ended ? "bad" : "warn" }, "aria-label": "Error" },
      h("div", { class: "row" }, h("h2", null, ended ? "What went wrong" : "The last attempt failed"), h("code", { class: "chip" }, String(told.code ?? "error")), state.error_class ? h("span", { class: "chip" }, state.error_class.replace("_", " ")) : null),
      h("p", { class: "wrap" }, words || "No message was left."),
      state.advice ? note("", "What to do next", sentence(state.advice)) : null,
      told.traceback ? h("details", null, h("summary", null, "Traceback"), codeBlock(String(told.traceback), "Traceback")) : null);
  }

  #facts() {
    const { job, state } = this;
    const lease = state.lease;
    return [
      card("Facts", {}, facts([
        ["Queue", link(`/studio/jobs?queue=${encodeURIComponent(job.queue)}`, {}, job.queue)],
        ["Contract", state.contract], ["Requester", state.requester_id], ["Priority", String(job.priority)],
        ["Attempts", `${job.attempts} of ${job.max_attempts}${state.lease_losses ? `, ${state.lease_losses} leases lost` : ""}`],
        ["Created", moment(state.created_at)], ["Runs from", state.waits === "delay" ? moment(state.run_at) : null],
        ["Started", state.started_at ? moment(state.started_at) : null], ["Ended", state.ended_at ? moment(state.ended_at) : null],
        ["Kept for", job.ttl_s ? `${job.ttl_s} s after its end` : null], ["Correlation", job.correlation_id ? h("span", { class: "mono small wrap" }, job.correlation_id) : null],
      ])),
      lease ? card("Lease", {}, facts([["Worker", h("span", { class: "mono" }, lease.worker_id)], ["Heartbeat", moment(lease.heartbeat_at)], ["Ends", moment(lease.lease_expires_at)]])) : null,
    ];
  }

  /** @param {import("../api.js").JobEvent} event */
  heard(event) {
    this.events.push(event);
    if (event.step && (event.type === "stage" || event.type === "progress") && !this.#seen.includes(event.step) && this.#seen.length < 12) this.#seen.push(event.step);
    if (event.type === "progress" || event.type === "stage") {
      this.job.progress = Math.max(this.job.progress, event.progress);
      this.job.step = event.step || this.job.step;
      if (event.data?.message) this.#message = String(event.data.message);
      this.#soon(() => this.#showProgress());
      if (event.type === "stage" && this.state.phase !== null) this.#later(); // its phase is told by the job alone
    } else if (MOVING.has(event.type)) {
      this.#message = "";
      this.#later();
    }
  }

  /** Read it again a little later, once for many events. */
  #later() {
    if (this.#reading) return;
    this.#reading = setTimeout(() => {
      this.#reading = 0;
      if (!this.view.signal.aborted) this.read().catch((error) => this.view.signal.aborted || fill(this.error, trouble(error)));
    }, READ_MS);
  }

  #drawn = false;

  /** Once in a frame. @param {() => void} draw */
  #soon(draw) {
    if (this.#drawn) return;
    this.#drawn = true;
    requestAnimationFrame(() => ((this.#drawn = false), draw()));
  }
}

/** @param {string} text */
const sentence = (text) => `${text[0]?.toUpperCase() ?? ""}${text.slice(1)}.`;

/** For a shell. @param {string} text */
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
