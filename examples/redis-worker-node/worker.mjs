// A worker of the redis gateway's contract in Node; it knows the contract and nothing of Callsheet.
//
//     npm ci && node worker.mjs redis://127.0.0.1:6379/0 [NAME]

import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";

const [url = "redis://127.0.0.1:6379/0", name = `node-${process.pid}`] = process.argv.slice(2);
const STREAM = "jobs:stream", GROUP = "workers", TERMINAL = ["done", "error", "canceled"];

// Commands wait while Redis is away, but none is repeated whose answer was lost: the job would end twice.
const redis = new Redis(url, { autoResendUnfulfilledCommands: false, maxRetriesPerRequest: null });
redis.on("error", (error) => console.error(`Redis is away, trying again: ${error.message}`));

let stopping = false;
process.on("SIGTERM", () => { stopping = true; });

// Your code. This one echoes, after `seconds`; `fail` makes it fail.
async function work(task, payload) {
  await sleep(1000 * (payload?.seconds ?? 0));
  if (payload?.fail !== undefined) throw new Error(payload.fail);
  return { task, echo: payload, worker: name };
}

// State, event, TTL and, for the last write, the acknowledgement: one transaction.
async function write(jobId, ttlS, fields, data, ack) {
  const key = `job:${jobId}`, nowMs = String(Date.now());
  const all = redis.multi().hset(key, { ...fields, updated_ts: nowMs });
  all.xadd(`${key}:events`, "*", "type", fields.status, "ts", nowMs, "step", "worker", "data", data);
  if (ttlS) all.expire(key, ttlS).expire(`${key}:events`, ttlS);
  if (ack) all.xack(STREAM, GROUP, ack);
  for (const [error] of await all.exec()) if (error) throw error;
}

async function handle(messageId, message) {
  const { job_id: jobId, task = "", payload: text = "" } = message;
  const [status, ttl] = await redis.hmget(`job:${jobId}`, "status", "ttl_s");
  const ttlS = /^\d+$/.test(ttl) ? Number(ttl) : 0;
  if (!jobId || TERMINAL.includes(status)) return redis.xack(STREAM, GROUP, messageId); // cancelled while it waited
  const fields = { status: "running" };
  let payload;
  try {
    payload = JSON.parse(text);
  } catch {
    payload = { _raw: text };
    fields.payload = JSON.stringify(payload);
  }
  await write(jobId, ttlS, fields, "{}");
  let outcome;
  try {
    outcome = { status: "done", result: JSON.stringify(await work(task, payload)) };
  } catch (error) {
    outcome = { status: "error", error: JSON.stringify({ code: error.name, message: error.message }) };
  }
  const mine = await redis.xpending(STREAM, GROUP, messageId, messageId, 1, name);
  // Not ours any more: we were silent for so long that the job was taken from us and has, or will have, another outcome.
  if (mine.length > 0) await write(jobId, ttlS, outcome, outcome.error ?? "{}", messageId);
}

while (!stopping) {
  try {
    const found = await redis.xreadgroup("GROUP", GROUP, name, "COUNT", 1, "BLOCK", 1000, "STREAMS", STREAM, ">");
    for (const [messageId, flat] of found?.[0][1] ?? []) {
      const pairs = flat.flatMap((field, i) => (i % 2 ? [] : [[field, flat[i + 1]]]));
      await handle(messageId, Object.fromEntries(pairs));
    }
  } catch (error) {
    if (error.message.startsWith("NOGROUP")) await redis.xgroup("CREATE", STREAM, GROUP, "0", "MKSTREAM");
    else if (error.name === "ReplyError") throw error;
    else await sleep(200); // the connection broke; what it left unacknowledged is recovered by others
  }
}
await redis.quit();
