// @ts-check
/**
 * Live jobs (contract 004) in the browser: follow one over a network that breaks, and hold what is known of it.
 *
 * Reconnects after 1, 2, 4, 8 and 16 s, never more than 30, five times in a row; an event that was of use begins the
 * count anew. The server says something each 10 s, if only a comment: a connection that is silent for `LIVE_SILENCE_MS` is
 * dead, and is given up before another one is opened. What no other try can help (401, 403, 404 …) is final.
 */
import { CallsheetError, EventParser, checkStream, json, problemOf, randomKey } from "./client.js";

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
 * @property {(ms: number) => Promise<void>} [pause] What is done before a reconnection.
 * @property {number} [silenceMs] A connection without a byte for so long is given up; LIVE_SILENCE_MS unless given.
 * @typedef {{window: string, last: string, ended: boolean}} Place Where a follower stands, and its name for the server.
 */

/** @type {Record<string, string>} */
const ENDS = { "job-completed": "Done", "job-failed": "Failed", "job-cancelled": "Canceled" };
const ATTEMPTS = 5;
/** Two and a half of the contract's keepalives. */
export const LIVE_SILENCE_MS = 25_000;

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
  next.message = data.message || (beginsStage(type, data) ? "" : state.message);
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

/** Whether a stage begins: what was said of the one before is not true of it. @param {string} type @param {Record<string, any>} data */
function beginsStage(type, data) {
  return type === "step-status" && data.status === "started";
}

/**
 * A live job's events, each once and in order, until its end. Throws CallsheetError when the server refuses for good,
 * or stays away for five attempts.
 * @param {string} jobId
 * @param {FollowOptions} [options]
 * @returns {AsyncGenerator<LiveEvent, void, void>}
 */
export async function* followLive(jobId, options = {}) {
  const { signal, pause = sleep } = options;
  /** @type {Place} */
  const place = { window: randomKey(), last: options.lastEventId ?? "", ended: false };
  let attempt = 0;
  while (!signal?.aborted) {
    /** @type {unknown} */
    let trouble = new CallsheetError("unreachable", "the server ended the stream");
    try {
      for await (const event of connection(jobId, place, options)) {
        if (event.id) attempt = 0;
        yield event;
      }
    } catch (error) {
      trouble = error;
    }
    if (place.ended || signal?.aborted) return;
    attempt += 1;
    if (attempt > ATTEMPTS || !(trouble instanceof CallsheetError) || !trouble.again) throw trouble;
    await pause(backoffMs(attempt));
  }
}

/**
 * The events of one connection. It is closed when this ends, however it ends.
 * @param {string} jobId @param {Place} place @param {FollowOptions} options @returns {AsyncGenerator<LiveEvent, void, void>}
 */
async function* connection(jobId, place, { signal, silenceMs = LIVE_SILENCE_MS, ...server }) {
  const open = new AbortController();
  const leave = () => open.abort();
  const giveUp = () => open.abort(new CallsheetError("unreachable", `nothing was heard for ${silenceMs / 1000} s`));
  let watchdog = setTimeout(giveUp, silenceMs);
  signal?.addEventListener("abort", leave);
  try {
    for await (const chunk of chunks(jobId, place, server, open.signal)) {
      clearTimeout(watchdog);
      for (const event of chunk) {
        yield event;
        if (place.ended) return;
      }
      watchdog = setTimeout(giveUp, silenceMs);
    }
  } finally {
    clearTimeout(watchdog);
    signal?.removeEventListener("abort", leave);
    open.abort();
  }
}

/**
 * What comes over one connection, in the pieces that it comes in: a comment is a piece without events.
 * @param {string} jobId @param {Place} place @param {FollowOptions} server @param {AbortSignal} signal
 * @returns {AsyncGenerator<Generator<LiveEvent, void, void>, void, void>}
 */
async function* chunks(jobId, place, { url = "", apiKey = "", fetch = globalThis.fetch.bind(globalThis) }, signal) {
  const query = new URLSearchParams({ window: place.window, ...(place.last && { lastEventId: place.last }) });
  const answer = await reached(signal, fetch(`${url}/api/jobs/${encodeURIComponent(jobId)}/events?${query}`, {
    headers: { Accept: "text/event-stream", ...(apiKey ? { Authorization: `Bearer ${apiKey}` } : {}) },
    cache: "no-store",
    signal,
  }));
  place.ended = answer.status === 204;
  if (place.ended) return;
  if (!answer.ok || answer.body === null) throw await problemOf(answer);
  checkStream(answer);
  const [parser, reader] = [new EventParser(), answer.body.getReader()];
  for (;;) {
    const { done, value } = await reached(signal, reader.read());
    if (done) return;
    yield events(parser, value, place);
  }
}

/** @param {EventParser} parser @param {Uint8Array} bytes @param {Place} place @returns {Generator<LiveEvent, void, void>} */
function* events(parser, bytes, place) {
  for (const { id, event: type, data } of parser.feed(bytes)) {
    const told = json(data);
    place.last = id || place.last;
    place.ended = type in ENDS;
    yield { id, type, data: told };
  }
}

/**
 * What the network gives. A failure of it is `unreachable`, which may be tried again.
 * @template T @param {AbortSignal} signal @param {Promise<T>} promise @returns {Promise<T>}
 */
async function reached(signal, promise) {
  try {
    return await promise;
  } catch (error) {
    if (signal.reason instanceof CallsheetError) throw signal.reason;
    throw error instanceof CallsheetError ? error : new CallsheetError("unreachable", String(error));
  }
}

/** @param {number} ms @returns {Promise<void>} */
function sleep(ms) {
  return new Promise((done) => setTimeout(done, ms));
}
