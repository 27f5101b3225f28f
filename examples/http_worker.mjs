// A worker of the control plane (contract 003) for Node 20 and later: fetch, and nothing else.
//
// CALLSHEET_URL=https://jobs.example.org CALLSHEET_TOKEN=… CALLSHEET_STREAMS=media,default node examples/http_worker.mjs
//
// One job at a time. Heartbeats wait at the server, so that a cancellation is heard of at once; SIGTERM hands the job
// back. TASKS are yours to write; these are the ones of `callsheet testkit worker`.

import { randomUUID } from "node:crypto";

const { CALLSHEET_URL: URL_ = "http://127.0.0.1:8484", CALLSHEET_TOKEN: TOKEN = "" } = process.env;
const STREAMS = (process.env.CALLSHEET_STREAMS ?? "default").split(",");
const WORKER_ID = process.env.CALLSHEET_WORKER_ID || `example-${randomUUID().slice(0, 8)}`;
const WAIT_MS = 20_000;
const SLACK_MS = 5_000;
const AGAIN = new Set([408, 425, 429]); // these and 5xx are asked again, as is an answer that is no JSON
const going = new AbortController(); // SIGTERM: hand back what runs
let draining = false; // take no more, finish what runs

class Refused extends Error {} // the server's answer is final
class Stopped extends Error {} // the work is not wanted any more

const pause = (ms, signal) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });

/** One call, again with growing, random pauses while that may help; throws Refused, or an Error in the end. */
async function ask(verb, body, { tries = 60, waitMs = 0, signal } = {}) {
  for (let attempt = 0; attempt < tries; attempt++) {
    let wait = Math.random() * Math.min(10_000, 200 * 2 ** attempt); // full jitter
    try {
      const timeout = AbortSignal.timeout(waitMs + SLACK_MS); // connecting, waiting and reading, all of it
      const first = verb === "claim" && attempt === 0 ? { first: true } : {};
      const answer = await fetch(`${URL_}/internal/worker/${verb}`, {
        method: "POST",
        headers: { Authorization: `Bearer ${TOKEN}`, "Content-Type": "application/json" },
        body: JSON.stringify({ worker_id: WORKER_ID, protocol: 2, ...first, ...body }),
        signal: signal ? AbortSignal.any([timeout, signal]) : timeout,
        redirect: "manual",
      });
      const text = await answer.text();
      if (answer.ok) {
        const found = JSON.parse(text);
        if (found.drain) draining = true;
        return found;
      }
      if (answer.status >= 400 && answer.status < 500 && !AGAIN.has(answer.status))
        throw new Refused(`${verb}: ${answer.status} ${text.slice(0, 200)}`);
      wait += Math.min(60, Number(answer.headers.get("retry-after")) || 0) * 1000;
    } catch (error) {
      if (error instanceof Refused || signal?.aborted) throw error;
    } // else: no answer, or a page that is none
    if (attempt + 1 < tries) await pause(wait, signal);
  }
  throw new Error(`the server has not answered ${verb}`);
}

/** A claimed job, kept alive beside its work. */
class Job {
  constructor(claimed) {
    const { job_id, attempt_id, lease_token, stream, message_id } = claimed;
    this.names = { job_id, attempt_id, lease_token, stream, message_id };
    this.task = claimed.task;
    this.payload = claimed.payload;
    this.everyMs = claimed.heartbeat_interval_seconds * 1000;
    this.leaseMs = claimed.lease_ttl_seconds * 1000;
    this.stopped = "";
    this.over = new AbortController();
  }

  /** Extend the lease until the end. The server answers when the job is to be cancelled, else after a beat. */
  async beat() {
    const { job_id, lease_token } = this.names;
    let heldUntil = performance.now() + this.leaseMs;
    let waitMs = 0; // the first beat confirms the claim, at once
    while (!this.over.signal.aborted && !this.stopped) {
      const askedAt = performance.now();
      try {
        const proof = { job_id, lease_token, wait_ms: Math.round(waitMs) };
        const said = await ask("heartbeat", proof, { tries: 1, waitMs, signal: this.over.signal });
        heldUntil = askedAt + this.leaseMs;
        if (said.cancel) this.stopped = "canceled";
      } catch (error) {
        if (error instanceof Refused || performance.now() > heldUntil) this.stopped = "lost";
      }
      if (performance.now() - askedAt < waitMs / 2) await pause(Math.min(1000, this.everyMs), this.over.signal);
      waitMs = this.everyMs;
    }
  }

  /** Call this often in long work: throws Stopped. */
  check() {
    if (this.stopped || going.signal.aborted) throw new Stopped(this.stopped || "going down");
  }

  /** Say how it went, as often as it takes; a lease that is lost makes it nobody's business. */
  async end(verb, more = {}) {
    try {
      await ask(verb, { ...this.names, ...more });
      console.log(`${this.names.job_id} ${verb}`);
    } catch (error) {
      console.log(`${this.names.job_id} ${error.message}`);
    }
  }
}

const TASKS = {
  echo: async (job) => job.payload,
  fail: async (job) => {
    const { message = "asked to fail", retryable = true } = job.payload;
    throw Object.assign(new Error(message), { retryable });
  },
  sleep: async (job) => {
    const until = performance.now() + job.payload.seconds * 1000;
    while (performance.now() < until) {
      job.check();
      await pause(Math.min(50, until - performance.now()));
    }
    return { slept: job.payload.seconds };
  },
};

/** One attempt, with its heartbeats. */
async function run(job) {
  const beats = job.beat();
  try {
    if (!(job.task in TASKS)) await job.end("release", { reason: "incapable" });
    else await job.end("complete", { result: await TASKS[job.task](job) });
  } catch (error) {
    if (!(error instanceof Stopped)) {
      const { name: code, message, stack = "", retryable = true } = error;
      await job.end("fail", { error: { code, message, stack: stack.slice(0, 8000), retryable } });
    } else if (job.stopped === "canceled") {
      await job.end("fail", { error: { code: "canceled", retryable: false } });
    } else if (job.stopped !== "lost") await job.end("release");
  } finally {
    job.over.abort();
    await beats;
  }
}

process.on("SIGTERM", () => ((draining = true), going.abort()));
try {
  while (!draining) {
    const wanted = { streams: STREAMS, max_wait_ms: WAIT_MS, claim_request_id: randomUUID() };
    let claimed;
    try {
      claimed = await ask("claim", wanted, { tries: Infinity, waitMs: WAIT_MS, signal: going.signal });
    } catch (error) {
      if (!going.signal.aborted) throw error; // else its answer may be lost: the same name asks for the same job
      claimed = await ask("claim", { ...wanted, max_wait_ms: 0, first: false }, { tries: 2 });
    }
    if (claimed.claimed) await run(new Job(claimed));
  }
  process.exit(0);
} catch (error) {
  console.error(`this worker is not wanted: ${error.message}`);
  process.exit(1);
}
