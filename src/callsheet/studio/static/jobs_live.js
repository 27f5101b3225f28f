// @ts-check
/**
 * What events say of a job in a list: status, step and progress. An event that ends a job does not say all of it, which
 * `ended` tells: then the job is read again.
 *
 * @typedef {import("./client.js").Job & {state: string, contract: string, requester_id: string, partial?: boolean}} ListedJob
 */

/** @type {Record<string, [string, string]>} Type of an event → status and state. */
const MOVES = {
  queued: ["queued", "queued"], running: ["running", "running"], stage: ["running", "running"], progress: ["running", "running"],
  retrying: ["queued", "queued"], requeued: ["queued", "queued"], released: ["queued", "queued"], lease_lost: ["queued", "queued"],
  done: ["done", "succeeded"], error: ["error", "failed"], canceled: ["canceled", "canceled"],
};

/**
 * A job after an event.
 * @param {ListedJob} job @param {import("./client.js").JobEvent} event @returns {{job: ListedJob, ended: boolean}}
 */
export function moved(job, event) {
  if (event.type === "reset") return { job: { ...job, ...event.data.job, payload: job.payload }, ended: false };
  const [status, state] = MOVES[event.type] ?? [job.status, job.state];
  const next = { ...job, status: /** @type {ListedJob["status"]} */ (status), state, step: event.step || job.step, progress: Math.max(job.progress, event.progress), updated_ts: event.ts };
  return { job: next, ended: status === "done" || status === "error" || status === "canceled" };
}

/** Whether a job waits or runs. @param {{status: string}} job */
export const isOpen = (job) => job.status === "queued" || job.status === "running";
