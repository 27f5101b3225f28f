// @ts-check
/**
 * The browser's client of a Callsheet server: one module, no dependencies, also for Node 20 and later.
 *
 * Event streams are read with fetch, since EventSource cannot send a key. A lost connection is taken up again where it
 * broke off: each event is given once, in order. Types are checked by `tools/check_types.py`.
 *
 * @typedef {"queued" | "running" | "done" | "error" | "canceled"} Status
 * @typedef {{code: string, message: string, [more: string]: unknown}} JobError
 * @typedef {object} Job Times are milliseconds.
 * @property {string} job_id
 * @property {string} task
 * @property {Record<string, unknown>} payload
 * @property {Status} status
 * @property {number} created_ts
 * @property {number} updated_ts
 * @property {number | null} ttl_s
 * @property {unknown} result
 * @property {JobError | null} error
 * @property {number} progress
 * @property {string} step
 * @property {number} attempts
 * @property {number} max_attempts
 * @property {string} queue
 * @property {number} priority
 * @property {string | null} last_event_id
 *
 * @typedef {object} Receipt A job was taken and will not be lost.
 * @property {string} job_id
 * @property {string} task
 * @property {Status} status
 * @property {number} ttl_s
 *
 * @typedef {object} JobEvent One fact of a job. Of type `reset`: begin anew from `data.job`.
 * @property {string} id
 * @property {string} job_id
 * @property {number} seq
 * @property {string} type
 * @property {number} ts
 * @property {string} step
 * @property {number} progress
 * @property {Record<string, any>} data
 *
 * @typedef {(event: JobEvent) => unknown} OnEvent What it returns is awaited; what it throws ends the watching.
 * @typedef {{event: string, data: string, id: string}} Frame
 * @typedef {{path: string, ended: boolean, resume: string, take(frame: Frame): JobEvent[]}} Place
 * @typedef {typeof PATIENCE} Patience
 */

/** A stream without a byte for so long is dead: three of the server's pings, as `Patience.silence_s` in Python. */
export const SILENCE_MS = 45_000;
const PATIENCE = {
  answerMs: 30_000,
  silenceMs: SILENCE_MS,
  firstPauseMs: 250,
  longestPauseMs: 15_000,
  retryForMs: 30_000,
  reconnectForMs: 300_000,
};
const LIMIT = 1024 * 1024;
const ENDED = new Set(["done", "error", "canceled"]);
const AGAIN = new Set([429, 502, 503, 504]);

/** What the server refused, or `unreachable` when it did not answer. `code` is stable. */
export class CallsheetError extends Error {
  /** @param {string} code @param {string} detail @param {{status?: number, requestId?: string, retryAfterS?: number}} [told] */
  constructor(code, detail, { status = 0, requestId = "", retryAfterS } = {}) {
    super(`${detail} (${code})`);
    this.name = "CallsheetError";
    this.code = code;
    this.detail = detail;
    this.status = status;
    this.requestId = requestId;
    this.retryAfterS = retryAfterS;
  }

  /** True when the same request may succeed later, unchanged. */
  get again() {
    return this.status === 0 ? this.code === "unreachable" : AGAIN.has(this.status);
  }
}

/** Server-sent events from bytes, by the rules of the WHATWG standard; chunks may be cut anywhere. */
export class EventParser {
  retryMs = 0;
  #text = new TextDecoder(); // drops a byte order mark
  #line = "";
  #afterCr = false;
  #event = "";
  #id = "";
  #held = 0;
  /** @type {string[]} */
  #data = [];

  /** @param {Uint8Array} chunk @returns {Generator<Frame, void, void>} */
  *feed(chunk) {
    let text = this.#text.decode(chunk, { stream: true });
    if (!text) return;
    if (this.#afterCr && text.startsWith("\n")) text = text.slice(1);
    this.#afterCr = text ? text.endsWith("\r") : false;
    const lines = text.split(/\r\n|\r|\n/);
    const rest = lines.pop() ?? "";
    for (const line of lines) {
      const frame = this.#endLine(this.#checked(this.#line + line));
      this.#line = "";
      if (frame) yield frame;
    }
    this.#line = this.#checked(this.#line + rest);
  }

  /** @param {string} line */
  #checked(line) {
    if (this.#held + line.length > LIMIT) throw new CallsheetError("event_too_large", `an event is over ${LIMIT} characters`);
    return line;
  }

  /** @param {string} line @returns {Frame | null} */
  #endLine(line) {
    if (!line) return this.#dispatch();
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (name === "data") {
      this.#held += value.length + 1;
      this.#data.push(value);
    } else if (name === "event") this.#event = value;
    else if (name === "id" && !value.includes("\0")) this.#id = value;
    else if (name === "retry" && /^[0-9]{1,9}$/.test(value)) this.retryMs = Number(value);
    return null;
  }

  #dispatch() {
    const [data, event] = [this.#data, this.#event || "message"];
    [this.#data, this.#event, this.#held] = [[], "", 0];
    return data.length ? { event, data: data.join("\n"), id: this.#id } : null;
  }
}

/** A server and a key. */
export class CallsheetClient {
  #url;
  /** @type {Record<string, string>} */
  #headers;
  #fetch;
  #patience;

  /** @param {{url?: string, apiKey?: string, fetch?: typeof fetch, patience?: Partial<Patience>}} [options] */
  constructor({ url = "", apiKey = "", fetch = globalThis.fetch.bind(globalThis), patience = {} } = {}) {
    this.#url = url.replace(/\/+$/, "");
    this.#headers = apiKey ? { Authorization: `Bearer ${apiKey}` } : {};
    this.#fetch = fetch;
    this.#patience = { ...PATIENCE, ...patience };
  }

  /**
   * A new job. It is made once, however often the request had to be sent.
   * @param {string} task @param {Record<string, unknown>} payload
   * @param {{ttlS?: number, idempotencyKey?: string, signal?: AbortSignal}} [options] @returns {Promise<Receipt>}
   */
  createJob(task, payload, { ttlS, idempotencyKey = randomKey(), signal } = {}) {
    const body = ttlS === undefined ? { task, payload } : { task, payload, ttl_s: ttlS };
    return this.#ask("POST", "/v1/jobs", { body, headers: { "Idempotency-Key": idempotencyKey }, signal });
  }

  /** @param {string} jobId @param {{signal?: AbortSignal}} [options] @returns {Promise<Job>} */
  getJob(jobId, { signal } = {}) {
    return this.#ask("GET", pathOf(jobId), { signal });
  }

  /**
   * One page of jobs, the newest first; `next` is the cursor of the next page.
   * @param {{status?: string, task?: string, queue?: string, limit?: number, cursor?: string}} [filter]
   * @param {{signal?: AbortSignal}} [options] @returns {Promise<{jobs: Job[], next: string | null}>}
   */
  listJobs(filter = {}, { signal } = {}) {
    const given = Object.entries(filter).filter(([, value]) => value !== undefined && value !== null && value !== "");
    const query = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
    return this.#ask("GET", query ? `/v1/jobs?${query}` : "/v1/jobs", { signal });
  }

  /** @param {string} jobId @param {string} [reason] @param {{signal?: AbortSignal}} [options] @returns {Promise<Job>} */
  cancelJob(jobId, reason = "", { signal } = {}) {
    return this.#ask("POST", `${pathOf(jobId)}/cancel`, { body: reason ? { reason } : {}, signal });
  }

  /**
   * Give a job's events to `onEvent` until its end. Resolves then, and also when `signal` is aborted.
   * @param {string} jobId @param {OnEvent} onEvent @param {{signal?: AbortSignal, after?: string}} [options]
   */
  watch(jobId, onEvent, { signal, after = "" } = {}) {
    return this.#follow(oneJob(jobId, after), onEvent, signal);
  }

  /**
   * The events of several jobs over one connection, until all have ended; `"*"` is every job, without an end. With
   * `tail`, and of `"*"` always, it begins with a `reset` of each to how it is now, not with all that has happened.
   * @param {string[] | "*"} jobs @param {OnEvent} onEvent @param {{signal?: AbortSignal, tail?: boolean}} [options]
   */
  watchMany(jobs, onEvent, { signal, tail = false } = {}) {
    return this.#follow(manyJobs(jobs, tail), onEvent, signal);
  }

  /**
   * @param {string} method @param {string} path
   * @param {{body?: unknown, headers?: Record<string, string>, signal?: AbortSignal}} more @returns {Promise<any>}
   */
  async #ask(method, path, { body, headers = {}, signal }) {
    /** @type {Record<string, string>} */
    const type = body === undefined ? {} : { "Content-Type": "application/json" };
    const pauses = new Pauses(this.#patience, this.#patience.retryForMs);
    for (;;) {
      try {
        const answer = await this.#send(path, {
          method,
          headers: { Accept: "application/json", ...type, ...headers },
          body: body === undefined ? null : JSON.stringify(body),
          signal: AbortSignal.any([AbortSignal.timeout(this.#patience.answerMs), ...(signal ? [signal] : [])]),
        });
        return json(await reached(answer.text()));
      } catch (error) {
        await pauses.after(error, signal);
      }
    }
  }

  /** @param {Place} place @param {OnEvent} onEvent @param {AbortSignal} [signal] @returns {Promise<void>} */
  async #follow(place, onEvent, signal) {
    for await (const event of this.#events(place, signal)) await onEvent(event);
  }

  /** @param {Place} place @param {AbortSignal} [signal] @returns {AsyncGenerator<JobEvent, void, void>} */
  async *#events(place, signal) {
    const pauses = new Pauses(this.#patience, this.#patience.reconnectForMs);
    while (!place.ended && !signal?.aborted) {
      try {
        for await (const frame of this.#frames(place, pauses, signal)) {
          for (const event of place.take(frame)) {
            pauses.failures = 0;
            yield event;
            if (signal?.aborted) return;
          }
          if (place.ended) return;
        }
        if (!place.ended) await pauses.after(new CallsheetError("unreachable", "the server ended the stream"), signal);
      } catch (error) {
        if (signal?.aborted) return;
        await pauses.after(error, signal);
      }
    }
  }

  /**
   * The frames of one connection; one that is silent for too long is given up.
   * @param {Place} place @param {Pauses} pauses @param {AbortSignal} [signal] @returns {AsyncGenerator<Frame, void, void>}
   */
  async *#frames(place, pauses, signal) {
    const [connection, opened] = [new AbortController(), Date.now()];
    const leave = () => connection.abort();
    let watchdog = setTimeout(leave, this.#patience.silenceMs);
    signal?.addEventListener("abort", leave);
    try {
      const answer = await this.#send(place.path, {
        headers: { Accept: "text/event-stream", ...(place.resume && { "Last-Event-ID": place.resume }) },
        signal: connection.signal,
      });
      place.ended = answer.status === 204;
      if (place.ended || !answer.body) return;
      checkStream(answer);
      pauses.deadline = 0;
      const [parser, reader] = [new EventParser(), answer.body.getReader()];
      for (;;) {
        const { done, value } = await reached(reader.read());
        if (done) return;
        clearTimeout(watchdog);
        yield* parser.feed(value);
        watchdog = setTimeout(leave, this.#patience.silenceMs);
        pauses.hintMs = parser.retryMs;
        if (Date.now() - opened > this.#patience.longestPauseMs) pauses.failures = 0;
      }
    } finally {
      clearTimeout(watchdog);
      signal?.removeEventListener("abort", leave);
      connection.abort();
    }
  }

  /** @param {string} path @param {Omit<RequestInit, "headers"> & {headers: Record<string, string>}} init */
  async #send(path, init) {
    const headers = { ...this.#headers, ...init.headers };
    const send = this.#fetch;
    const request = send(this.#url + path, { cache: "no-store", credentials: "omit", redirect: "error", ...init, headers });
    const answer = await reached(request);
    if (!answer.ok) throw await problemOf(answer);
    return answer;
  }
}

/** Pauses that double, with chance, so that clients which lost the same server do not come back together. */
class Pauses {
  failures = 0;
  deadline = 0;
  hintMs = 0;

  /** @param {Patience} patience @param {number} forMs */
  constructor(patience, forMs) {
    this.patience = patience;
    this.forMs = forMs;
  }

  /** Wait before the next try; throws what cannot be helped by one. @param {unknown} error @param {AbortSignal} [signal] */
  async after(error, signal) {
    if (!(error instanceof CallsheetError) || !error.again || signal?.aborted) throw signal?.reason ?? error;
    this.deadline ||= Date.now() + this.forMs;
    const { firstPauseMs, longestPauseMs } = this.patience;
    const chance = Math.random() * Math.min(longestPauseMs, firstPauseMs * 2 ** Math.min(this.failures, 20));
    const asked = error.retryAfterS === undefined ? null : error.retryAfterS * (1 + Math.random() / 10) * 1000;
    const pause = asked ?? Math.min(longestPauseMs, this.hintMs + chance);
    if (Date.now() + pause > this.deadline) throw error;
    this.failures += 1;
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, pause);
      signal?.addEventListener("abort", () => (clearTimeout(timer), resolve(null)), { once: true });
    });
  }
}

/** A place among the events of one job. @param {string} jobId @param {string} after @returns {Place} */
function oneJob(jobId, after) {
  let seq = after ? seqOf(after) : 0;
  return {
    path: `${pathOf(jobId)}/events`,
    ended: false,
    resume: after,
    take(frame) {
      const told = json(frame.data);
      const event = "seq" in told ? told : frame.event === "reset" ? resetOf(told.job, told.last_event_id) : null;
      if (!event || ("seq" in told && event.seq <= seq)) return []; // a hello, or seen before
      [seq, this.resume] = [event.seq, event.id];
      this.ended = ENDED.has("seq" in told ? event.type : told.job.status);
      return [event];
    },
  };
}

/** A place in the stream of many jobs; the server's cursor is opaque. @param {string[] | "*"} jobs @param {boolean} tail @returns {Place} */
function manyJobs(jobs, tail) {
  const named = jobs === "*" ? ["*"] : [...new Set(jobs)];
  const left = new Set(named);
  /** @type {Map<string, number>} */
  const seqs = new Map();
  return {
    path: `/v1/events?jobs=${named.map(encodeURIComponent).join(",")}${tail ? "&tail=true" : ""}`,
    ended: named.length === 0,
    resume: "",
    take(frame) {
      const told = json(frame.data);
      this.resume = frame.id || this.resume;
      const anew = frame.event === "reset" && !("seq" in told);
      /** @type {JobEvent[]} */
      const said = "seq" in told ? [told] : anew || tail || jobs === "*" ? told.jobs.map((/** @type {Job} */ job) => resetOf(job)) : [];
      const events = said.filter((event) => anew || event.seq > (seqs.get(event.job_id) ?? 0));
      for (const event of events) seqs.set(event.job_id, event.seq);
      for (const event of events) if (ENDED.has(event.data.job?.status ?? event.type)) left.delete(event.job_id);
      this.ended = left.size === 0;
      return events;
    },
  };
}

/** @param {Job} job @param {string} [lastId] @returns {JobEvent} */
function resetOf(job, lastId) {
  const id = lastId || job.last_event_id || "0-0";
  const { job_id, updated_ts: ts, step, progress } = job;
  return { id, job_id, seq: seqOf(id), type: "reset", ts, step, progress, data: { job } };
}

/** @param {string} text @returns {any} */
export function json(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new CallsheetError("unexpected_answer", "this is no JSON; is it a Callsheet server?");
  }
}

/** @template T @param {Promise<T>} promise Of the network. @returns {Promise<T>} */
async function reached(promise) {
  try {
    return await promise;
  } catch (error) {
    throw new CallsheetError("unreachable", `the server cannot be reached: ${error}`);
  }
}

/** @param {Response} answer */
export async function problemOf(answer) {
  const told = await answer.json().catch(() => ({}));
  const after = Number.parseInt(answer.headers.get("Retry-After") ?? "", 10);
  return new CallsheetError(told.code ?? `http_${answer.status}`, told.detail ?? answer.statusText, {
    status: answer.status,
    requestId: told.request_id,
    ...(after >= 0 && { retryAfterS: after }),
  });
}

/** @param {Response} answer */
export function checkStream(answer) {
  const type = answer.headers.get("Content-Type") ?? "";
  if (!type.startsWith("text/event-stream")) throw new CallsheetError("unexpected_answer", `${type} is no event stream`);
}

/** @param {string} jobId */
function pathOf(jobId) {
  return `/v1/jobs/${encodeURIComponent(jobId)}`;
}

/** @param {string} eventId */
function seqOf(eventId) {
  return Number(eventId.split("-")[1]);
}

/** `crypto.randomUUID` is missing on pages without https. */
export function randomKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
