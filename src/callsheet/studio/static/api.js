// @ts-check
/**
 * The studio's way to the API: the session's cookie, problems as errors, a server that is away, live events.
 *
 *   await get("/v1/jobs", { query: { status: ["queued"], limit: 50 }, signal })    GETs wait for a server that is away
 *   await post(`/v1/jobs/${id}/cancel`, { reason })                               put, patch and del likewise; these fail
 *   await poll(load, 3000, signal)        now, and then each 3 s while the page is seen and the server answers
 *   await follow(["id", …], onEvent, signal)     live events of up to 200 jobs over one stream; "*" is all
 *   await followLiveJob(id, onEvent, { signal, onLost })     one job in the words of contract 004
 *
 * What is refused is thrown as a CallsheetError (`code`, `detail`, `status`, `requestId`; `told` is the whole problem).
 * 401 ends the session: `onSignedOut` is called. `onConnection` tells when the server goes away and comes back.
 */
import { CallsheetClient, CallsheetError } from "./client.js";
import { followLive } from "./live.js";

export { CallsheetError };

/**
 * @typedef {object} Options
 * @property {Record<string, string | number | boolean | null | undefined | string[]>} [query]
 * @property {AbortSignal} [signal]
 * @property {Record<string, string>} [headers]
 * @typedef {import("./client.js").JobEvent} JobEvent
 */

const PROOF = { "X-Callsheet-Studio": "1" };
const AWAY = new Set([502, 503, 504]);
const PROBE_MS = [500, 1000, 2000, 3000, 5000];
const ANSWER_MS = 30_000;

/** A Problem as the server tells it. */
export class Refusal extends CallsheetError {
  /** @param {Response} answer @param {Record<string, any>} told */
  constructor(answer, told) {
    const after = Number.parseInt(answer.headers.get("Retry-After") ?? "", 10);
    super(told.code ?? `http_${answer.status}`, told.detail ?? answer.statusText ?? "the server refused", {
      status: answer.status,
      requestId: told.request_id ?? answer.headers.get("X-Request-ID") ?? "",
      ...(after >= 0 && { retryAfterS: after }),
    });
    this.told = told;
  }
}

/** @type {Set<(away: boolean) => void>} */
const connectionListeners = new Set();
/** @type {() => void} */
let signedOut = () => undefined;
/** @type {Promise<void> | null} Ends when the server answers again. */
let returning = null;

/** Be told when the server goes away (true) and comes back (false); answers with how to end that. @param {(away: boolean) => void} listener */
export function onConnection(listener) {
  connectionListeners.add(listener);
  return () => connectionListeners.delete(listener);
}

/** @param {() => void} listener */
export function onSignedOut(listener) {
  signedOut = listener;
}

/** @param {string} path @param {Options} [options] @returns {Promise<any>} */
export async function get(path, options = {}) {
  for (;;) {
    try {
      return await ask("GET", path, undefined, options);
    } catch (error) {
      if (!(error instanceof CallsheetError) || !isAway(error)) throw error;
      await unless(options.signal, serverBack());
    }
  }
}

/** @param {string} path @param {unknown} [body] @param {Options} [options] @returns {Promise<any>} */
export const post = (path, body, options) => ask("POST", path, body, options);
/** @param {string} path @param {unknown} [body] @param {Options} [options] @returns {Promise<any>} */
export const put = (path, body, options) => ask("PUT", path, body, options);
/** @param {string} path @param {unknown} [body] @param {Options} [options] @returns {Promise<any>} */
export const patch = (path, body, options) => ask("PATCH", path, body, options);
/** @param {string} path @param {unknown} [body] @param {Options} [options] @returns {Promise<any>} */
export const del = (path, body, options) => ask("DELETE", path, body, options);

/** The answer itself, for what is no JSON (a log, a file). @param {string} path @param {Options} [options] */
export async function raw(path, { query, signal, headers = {} } = {}) {
  const answer = await reach(withQuery(path, query), { headers, ...(signal && { signal }) });
  if (!answer.ok) throw await refusal(answer);
  return answer;
}

/** @param {string} method @param {string} path @param {unknown} body @param {Options} [options] */
async function ask(method, path, body, { query, signal, headers = {} } = {}) {
  const late = AbortSignal.timeout(ANSWER_MS);
  const answer = await reach(withQuery(path, query), {
    method,
    headers: { Accept: "application/json", ...(body !== undefined && { "Content-Type": "application/json" }), ...headers },
    ...(body !== undefined && { body: JSON.stringify(body) }),
    signal: signal ? AbortSignal.any([signal, late]) : late,
  });
  if (!answer.ok) throw await refusal(answer);
  const text = await answer.text();
  return text ? JSON.parse(text) : null;
}

/** One request with the session's cookie and its proof. @param {string} path @param {RequestInit} init */
async function reach(path, init) {
  try {
    const answer = await fetch(path, {
      cache: "no-store", redirect: "follow", ...init, credentials: "same-origin",
      headers: { .../** @type {Record<string, string>} */ (init.headers ?? {}), ...PROOF },
    });
    if (AWAY.has(answer.status)) lost();
    if (answer.status === 401) signedOut();
    return answer;
  } catch (error) {
    if (init.signal?.aborted && init.signal.reason?.name !== "TimeoutError") throw error;
    lost();
    throw new CallsheetError("unreachable", "the server does not answer");
  }
}

/** @param {Response} answer */
async function refusal(answer) {
  return new Refusal(answer, await answer.json().catch(() => ({})));
}

/** @param {string} path @param {Options["query"]} [query] */
export function withQuery(path, query) {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value === null || value === undefined || value === "") continue;
    for (const one of Array.isArray(value) ? value : [value]) params.append(name, String(one));
  }
  const text = params.toString();
  return text ? `${path}?${text}` : path;
}

/** Whether an error says that the server is away, not that it refuses. @param {unknown} error */
export function isAway(error) {
  return error instanceof CallsheetError && (error.code === "unreachable" || AWAY.has(error.status));
}

/** Begin to look for the server, unless that is done already. */
function lost() {
  returning ??= (async () => {
    for (const listener of connectionListeners) listener(true);
    for (let tries = 0; ; tries += 1) {
      await pause(PROBE_MS[Math.min(tries, PROBE_MS.length - 1)] ?? 5000);
      const answer = await fetch("/readyz", { cache: "no-store", signal: AbortSignal.timeout(5000) }).catch(() => null);
      if (answer?.ok) break;
    }
    returning = null;
    for (const listener of connectionListeners) listener(false);
  })();
}

/** Ends at once while the server answers, else when it does again. */
export function serverBack() {
  return returning ?? Promise.resolve();
}

/**
 * Do something now, and then each `everyMs` while the page is seen and the server is there; until the signal.
 * What it throws for reasons other than an absent server ends this, and is thrown.
 * @param {() => Promise<unknown>} load @param {number} everyMs @param {AbortSignal} signal
 */
export async function poll(load, everyMs, signal) {
  while (!signal.aborted) {
    try {
      await unless(signal, serverBack());
      await load();
    } catch (error) {
      if (signal.aborted) return;
      if (!isAway(error)) throw error;
    }
    await pause(everyMs, signal);
    await seen(signal);
  }
}

/** Ends when the page is in sight. @param {AbortSignal} signal @returns {Promise<void>} */
export function seen(signal) {
  if (!document.hidden || signal.aborted) return Promise.resolve();
  return new Promise((done) => {
    const look = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener("visibilitychange", look);
      signal.removeEventListener("abort", look);
      done();
    };
    document.addEventListener("visibilitychange", look);
    signal.addEventListener("abort", look);
  });
}

const client = new CallsheetClient({
  fetch: (input, init = {}) => reach(String(input), init),
  patience: { reconnectForMs: Number.MAX_SAFE_INTEGER, longestPauseMs: 5000, firstPauseMs: 250 },
});

/**
 * Do something while the page is in sight, and again when it is back, until it is done or the signal comes. What goes on
 * gets a signal of its own: a browser has six connections for all its tabs, so those of hidden pages are given back.
 * @param {AbortSignal} signal @param {(signal: AbortSignal) => Promise<unknown>} act
 */
async function whileSeen(signal, act) {
  while (!signal.aborted) {
    await seen(signal);
    const sight = new AbortController();
    const leave = () => document.hidden && sight.abort();
    document.addEventListener("visibilitychange", leave);
    try {
      await act(AbortSignal.any([signal, sight.signal]));
    } finally {
      document.removeEventListener("visibilitychange", leave);
    }
    if (!sight.signal.aborted) return;
  }
}

/**
 * Live events of jobs (at most 200 ids, or "*") over one connection, until all have ended or the signal. It begins with an
 * event `reset` of each (`data.job` as it is now), and so it does when the page was out of sight.
 * @param {string[] | "*"} jobs @param {(event: JobEvent) => unknown} onEvent @param {AbortSignal} signal
 */
export async function follow(jobs, onEvent, signal) {
  await whileSeen(signal, (seenSignal) => client.watchMany(jobs, onEvent, { tail: true, signal: seenSignal }));
}

/**
 * One job's events from a given one on, until its end or the signal.
 * @param {string} jobId @param {(event: JobEvent) => unknown} onEvent @param {{after?: string, signal: AbortSignal}} options
 */
export async function followOne(jobId, onEvent, { after = "", signal }) {
  let last = after;
  await whileSeen(signal, (seenSignal) => client.watch(jobId, (event) => ((last = event.id), onEvent(event)), { after: last, signal: seenSignal }));
}

/**
 * A live job's events in the words of contract 004, each once, until its end or the signal. `onLost` is told of each
 * connection that was lost, and in how many ms it is tried again; after five in a row this throws.
 * @param {string} jobId @param {(event: import("./live.js").LiveEvent) => unknown} onEvent
 * @param {{signal: AbortSignal, onLost: (ms: number) => void}} options
 */
export async function followLiveJob(jobId, onEvent, { signal, onLost }) {
  let last = "";
  await whileSeen(signal, async (seenSignal) => {
    const wait = (/** @type {number} */ ms) => (onLost(ms), pause(ms, seenSignal));
    const events = followLive(jobId, { lastEventId: last, signal: seenSignal, pause: wait, fetch: (input, init = {}) => reach(String(input), init) });
    for await (const event of events) {
      last = event.id || last;
      onEvent(event);
    }
  });
}

/** Ends after a time, or with the signal. @param {number} ms @param {AbortSignal} [signal] @returns {Promise<void>} */
export function pause(ms, signal) {
  return new Promise((done) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      done();
    };
    const timer = setTimeout(end, ms);
    if (signal?.aborted) end();
    else signal?.addEventListener("abort", end);
  });
}

/** What a promise gives, unless the signal comes first: then its reason is thrown. @template T @param {AbortSignal | undefined} signal @param {Promise<T>} promise @returns {Promise<T>} */
function unless(signal, promise) {
  if (!signal) return promise;
  return new Promise((done, refuse) => {
    const leave = () => refuse(signal.reason);
    if (signal.aborted) leave();
    signal.addEventListener("abort", leave);
    promise.then(done, refuse).finally(() => signal.removeEventListener("abort", leave));
  });
}
