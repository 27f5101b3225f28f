// A worker of cortana-vision's `jobs` table in Node with pg; it knows the contract and nothing of Callsheet.
//
//     npm ci && node worker.mjs postgresql://…/database transcode [NAME]

import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";

const [url, jobType, name = `node-${process.pid}`] = process.argv.slice(2);
const POLL = `SELECT * FROM jobs WHERE status = 'queued' AND job_type = $1 AND run_at <= now()
              ORDER BY priority DESC, created_at ASC LIMIT 1 FOR UPDATE SKIP LOCKED`;
const CLAIM = "UPDATE jobs SET status = 'processing', locked_by = $1, locked_until = now() + $2::interval WHERE id = $3";
const END = "UPDATE jobs SET status = $1::job_status, payload = $2 WHERE id = $3 AND locked_by = $4";

// Your code: read the original, write what the contract asks for. What it returns is the job's result.
async function work(job) {
  console.log(`working on ${job.id}`);
  await sleep(1000 * Number(process.env.WORK_S ?? 0));
  return {};
}

const db = new pg.Client({ connectionString: url });
await db.connect();
await db.query("SET ROLE service_role");
for (;;) {
  await db.query("BEGIN");
  const { rows: [job] } = await db.query(POLL, [jobType]);
  if (job) await db.query(CLAIM, [name, process.env.LEASE ?? "5 minutes", job.id]);
  await db.query("COMMIT");
  if (!job) {
    await sleep(200);
    continue;
  }
  let status = "done", payload;
  try {
    payload = { ...job.payload, ...await work(job) };
  } catch (error) {
    status = "failed";
    const about = { type: error.name, message: error.message, timestamp: new Date().toISOString() };
    payload = { error: { ...about, retry_count: job.retry_count }, original_payload: job.payload };
  }
  await db.query(END, [status, payload, job.id, name]); // the next stage is created with it
}
