// @ts-check
/** The attempts of a job as bars on one time scale: who, from when, how long, and how each ended. */
import { badge } from "../../components/badge.js";
import { moment } from "../../components/moment.js";
import { h } from "../../dom.js";
import { clockRange, duration, zone } from "../../format.js";

/** @param {{attempts: any[], lease: any}} told @param {any} state */
export function attemptTimeline(told, state) {
  if (!told.attempts.length) return h("p", { class: "quiet" }, "No worker has begun it yet.");
  const from = Math.min(state.created_at, ...told.attempts.map((attempt) => attempt.started_at));
  const to = Math.max(from + 1, ...told.attempts.map((attempt) => attempt.ended_at ?? Date.now()));
  const shown = told.attempts.slice(-100);
  const [first, last] = clockRange(from, to);
  return h("div", { class: "stack" },
    told.attempts.length > shown.length ? h("p", { class: "small quiet" }, `The last ${shown.length} of ${told.attempts.length}.`) : null,
    h("ol", { class: "attempts" }, shown.map((attempt) => one(attempt, from, to, told.lease))),
    h("div", { class: "scale small quiet" }, h("span", null, first), h("span", null, duration(to - from)), h("span", null, `${last} ${zone()}`)));
}

/** @param {any} attempt @param {number} from @param {number} to @param {any} lease */
function one(attempt, from, to, lease) {
  const end = attempt.ended_at ?? Math.max(to, Date.now());
  const [left, width] = [(100 * (attempt.started_at - from)) / (to - from), Math.max(0.8, (100 * (end - attempt.started_at)) / (to - from))];
  const outcome = attempt.outcome ?? "running";
  const holds = lease && lease.attempt_id === attempt.attempt_id;
  const error = attempt.error && typeof attempt.error === "object" ? attempt.error : null;
  return h("li", { data: { outcome } },
    h("div", { class: "row" }, h("strong", null, `#${attempt.attempt}`), badge(outcome), h("span", { class: "mono small clip" }, attempt.worker_id),
      h("span", { class: "small quiet" }, "began ", moment(attempt.started_at), ", ", attempt.ended_at ? `took ${duration(attempt.ended_at - attempt.started_at)}` : ["runs for ", moment(attempt.started_at, "duration")]),
      holds ? h("span", { class: "small quiet" }, "lease ends ", moment(lease.lease_expires_at)) : null),
    h("div", { class: "gantt", "aria-hidden": "true" }, h("i", { style: { left: `${Math.min(99, left)}%`, width: `${Math.min(width, 100 - Math.min(99, left))}%` } })),
    error ? h("p", { class: "small wrap" }, h("code", null, String(error.code ?? "error")), " ", String(error.message ?? "")) : null);
}
