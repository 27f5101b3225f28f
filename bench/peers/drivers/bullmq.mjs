// BullMQ on Redis (append-only file): addBulk, concurrency 100 (24 and 300 were no faster), completed jobs removed.
// Recovery: lockDuration and stalledInterval (30 s each by default) at 3 s, maxStalledCount raised so that it is rerun.

import { BATCH, Peer, load, main, sleep } from "./common.mjs";

const { Queue, Worker } = load("bullmq");
const { Redis } = load("ioredis");
const KEEP = { removeOnComplete: true };

class BullMq extends Peer {
  async open() {
    this.connection = new Redis(this.url, { maxRetriesPerRequest: null });
    this.queue = new Queue("bench", { connection: this.connection });
    await this.queue.waitUntilReady();
  }

  async bulk(count) {
    const jobs = Array.from({ length: BATCH }, () => ({ name: "job", data: {}, opts: KEEP }));
    for (let i = 0; i < count; i += BATCH) await this.queue.addBulk(jobs);
  }

  async one(stamp) {
    await this.queue.add("job", { stamp }, this.options.scenario === "zombie" ? {} : KEEP);
  }

  async start(settings = {}) {
    const handler = async (job) => {
      if (this.pausing) await this.pause();
      this.hit(job.data.stamp);
      return this.options.journal ? this.options.name : null;
    };
    this.worker = new Worker("bench", handler, { connection: this.connection, concurrency: 100, ...settings });
    this.worker.on("error", () => {});
    await this.worker.waitUntilReady();
  }

  async stop() {
    await this.worker.close();
  }

  async left() {
    const { active, wait } = await this.queue.getJobCounts("active", "wait");
    return active + wait;
  }

  async work() {
    await this.start({ lockDuration: 3000, stalledInterval: 3000, maxStalledCount: 100 });
    for (;;) await sleep(1000);
  }

  async state() {
    const jobs = await this.queue.getJobs(["active", "wait", "completed", "failed"]);
    const found = jobs.map(async (job) => `${job.id} ${await job.getState()} result ${job.returnvalue}`);
    return (await Promise.all(found)).sort().join(", ");
  }
}

await main(BullMq, ["bullmq", "ioredis"]);
