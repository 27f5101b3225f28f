// Does with client.js what the lines on standard input say, one JSON object each, and answers with JSON lines.
import { createInterface } from "node:readline";
import { CallsheetClient, CallsheetError, EventParser } from "../../src/callsheet/studio/static/client.js";

import { backoffMs, followLive, merged, newState } from "../../src/callsheet/studio/static/live.js";

console.debug = () => undefined; // it would stand among the answers
const say = (told) => process.stdout.write(`${JSON.stringify(told)}\n`);
const { url, apiKey, patience } = JSON.parse(process.argv[2]);
const client = new CallsheetClient({ url, apiKey, patience });

const verbs = {
  create: ({ task, payload, options }) => client.createJob(task, payload, options),
  get: ({ job }) => client.getJob(job),
  list: ({ filter }) => client.listJobs(filter),
  cancel: ({ job, reason }) => client.cancelJob(job, reason),
  watch: ({ job, after, stopAt, throwAt }) => {
    const leave = new AbortController();
    const onEvent = (event) => {
      say({ event });
      if (event.type === throwAt) throw new RangeError("of the page itself");
      if (event.type === stopAt) leave.abort();
    };
    return client.watch(job, onEvent, { after, signal: leave.signal });
  },
  many: ({ jobs, stopAt }) => {
    const leave = new AbortController();
    const onEvent = async (event) => {
      say({ event });
      if (event.type === stopAt) leave.abort();
    };
    return client.watchMany(jobs, onEvent, { signal: leave.signal });
  },
  live: async ({ job, lastEventId }) => {
    let state = newState();
    const paused = [];
    const pause = async (ms) => void paused.push(ms);
    for await (const event of followLive(job, { url, apiKey, lastEventId, pause })) {
      say({ event });
      state = merged(state, event);
    }
    return { state, paused };
  },
  merge: ({ events }) => events.reduce(merged, newState()),
  backoff: ({ attempts }) => attempts.map(backoffMs),
  parse: ({ chunks }) => {
    const parser = new EventParser();
    const frames = chunks.flatMap((chunk) => [...parser.feed(Buffer.from(chunk, "base64"))]);
    return { frames: frames.map(({ event, data, id }) => [event, data, id]), retry: parser.retryMs };
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  try {
    say({ result: (await verbs[command.verb](command)) ?? null });
  } catch (error) {
    const { name, message, code, status, requestId, retryAfterS } = error;
    say({ error: { name, message, code, status, requestId, retryAfterS, ours: error instanceof CallsheetError } });
  }
}
