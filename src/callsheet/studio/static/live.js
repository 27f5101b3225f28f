// @ts-check
/**
 * Live jobs (contract 004) in the browser: follow one over a network that breaks, and hold what is known of it.
 *
 * Reconnects after 1, 2, 4, 8 and 16 s, never more than 30, five times in a row; an event that was of use begins the
 * count anew. 401, 403 and 404 are final.
 */
import { CallsheetError, EventParser } from "./client.js";

/**
 * @typedef {{id: string, type: string, data: Record<string, any>}} LiveEvent
 * @typedef {object} LiveState What is known of a job; `percent` never falls.
 * @property {string} status
 * @property {string} stage
 * @property {string} phase
 * @property {number} percent
 * @property {string} message
 * @property {string[]} warnings
 * @property {unknown[]} errors
 * @property {unknown} output
 * @property {number} rejected
 * @property {boolean} ended
 * @typedef {object} FollowOptions
 * @property {string} [url] The server; this page's own unless given.
 * @property {string} [apiKey] A key; without one the page's session is used.
 * @property {string} [lastEventId]
 * @property {AbortSignal} [signal]
 * @property {typeof globalThis.fetch} [fetch]
 * @property {(ms: number) => Promise<void>} [pause]
 */

/** @type {Record<string, string>} */
const ENDS = { "job-completed": "Done", "job-failed": "Failed", "job-cancelled": "Canceled" };
const PERMANENT = new Set([401, 403, 404]);
const ATTEMPTS = 5;

/** The pause before a reconnection in ms; the first is attempt 1. @param {number} attempt */
export function backoffMs(attempt) {
  return Math.min(30_000, 1_000 * 2 ** (attempt - 1));
}

/** @returns {LiveState} */
export function newState() {
  return {
    status: "Queued", stage: "", phase: "", percent: 0, message: "", warnings: [], errors: [], output: null,
    rejected: 0, ended: false,
  };
}

/**
 * A state with one more event in it. A report of progress that was overtaken changes nothing but `rejected`.
 * @param {LiveState} state
 * @param {LiveEvent} event
 * @returns {LiveState}
 */
export function merged(state, { type, data }) {
  const next = { ...state };
  const progress = data.progressPct ?? data.percent;
  if (typeof progress === "number") {
    if (progress < state.percent) {
      next.rejected += 1;
      console.debug(`Rejected progress ${progress}%, current is ${state.percent}%`);
      if (type === "step-progress") return next;
    }
    next.percent = Math.max(state.percent, progress);
  }
  next.stage = data.step || data.stage || state.stage;
  next.phase = data.phase || state.phase;
  next.message = data.message || state.message;
  if (type === "warning") next.warnings = [...state.warnings.slice(-99), String(data.message ?? "")];
  const end = ENDS[type];
  if (end !== undefined) {
    next.status = end;
    next.ended = true;
    next.errors = data.errors ?? [];
    next.output = data.output ?? null;
    if (type === "job-completed") next.percent = 100;
  } else if (type === "job-status" && !state.ended) {
    next.status = data.status ?? state.status;
  }
  return next;
}

/**
 * A live job's events, each once and in order, until its end. Throws CallsheetError when the server refuses for good,
 * or stays away for five attempts.
 * @param {string} jobId
 * @param {FollowOptions} [options]
 * @returns {AsyncGenerator<LiveEvent, void, void>}
 */
export async function* followLive(jobId, options = {}) {
  const { url = "", apiKey = "", signal, fetch = globalThis.fetch.bind(globalThis), pause = sleep } = options;
  let last = options.lastEventId ?? "";
  let attempt = 0;
  while (!signal?.aborted) {
    /** @type {CallsheetError} */
    let trouble = new CallsheetError("unreachable", "the server ended the stream");
    try {
      const query = last ? `?lastEventId=${encodeURIComponent(last)}` : "";
      const answer = await fetch(`${url}/api/jobs/${encodeURIComponent(jobId)}/events${query}`, {
        headers: { Accept: "text/event-stream", ...(apiKey ? { Authorization: `Bearer ${apiKey}` } : {}) },
        cache: "no-store",
        ...(signal ? { signal } : {}),
      });
      if (answer.status === 204) return;
      if (!answer.ok || answer.body === null) throw await refused(answer);
      const parser = new EventParser();
      const reader = answer.body.getReader();
      try {
        for (let read = await reader.read(); !read.done; read = await reader.read()) {
          for (const frame of parser.feed(read.value)) {
            if (frame.id) {
              last = frame.id;
              attempt = 0;
            }
            yield { id: frame.id, type: frame.event, data: JSON.parse(frame.data) };
            if (frame.event in ENDS) return;
          }
        }
      } finally {
        reader.cancel().catch(() => undefined);
      }
    } catch (error) {
      if (signal?.aborted) return;
      if (error instanceof CallsheetError) {
        if (PERMANENT.has(error.status)) throw error;
        trouble = error;
      } else {
        trouble = new CallsheetError("unreachable", String(error));
      }
    }
    attempt += 1;
    if (attempt > ATTEMPTS) throw trouble;
    await pause(backoffMs(attempt));
  }
}

/** @param {Response} answer */
async function refused(answer) {
  const body = await answer.json().catch(() => ({}));
  return new CallsheetError(body.code ?? "unexpected", body.detail ?? answer.statusText, { status: answer.status });
}

/** @param {number} ms @returns {Promise<void>} */
function sleep(ms) {
  return new Promise((done) => setTimeout(done, ms));
}
