// Graphile Worker on PostgreSQL: localQueue of 500, completions and failures batched without delay, 24 jobs at once
// (10 and 100 made no difference beyond the noise).
// Recovery: a job stays locked for four hours, which no setting shortens; a heartbeat is part of Worker Pro only.

import { BATCH, Peer, load, main } from "./common.mjs";

const { makeWorkerUtils, run, Logger } = load("graphile-worker");
const pg = load("pg");

class Graphile extends Peer {
  async open() {
    this.pool = new pg.Pool({ connectionString: this.url, max: 20 });
    this.pool.on("error", () => {});
    this.pool.on("connect", (client) => client.on("error", () => {}));
    this.logger = new Logger(() => () => {});
    this.utils = await makeWorkerUtils({ pgPool: this.pool, logger: this.logger });
    await this.utils.migrate();
  }

  async bulk(count) {
    const jobs = Array.from({ length: BATCH }, () => ({ identifier: "job", payload: {} }));
    for (let i = 0; i < count; i += BATCH) await this.utils.addJobs(jobs);
  }

  async one(stamp) {
    await this.utils.addJob("job", { stamp });
  }

  async start() {
    this.runner = await run({
      pgPool: this.pool,
      logger: this.logger,
      noHandleSignals: true,
      preset: {
        worker: {
          concurrentJobs: 24,
          pollInterval: 2000,
          maxPoolSize: 20,
          localQueue: { size: 500 },
          completeJobBatchDelay: 0,
          failJobBatchDelay: 0,
        },
      },
      taskList: {
        job: async ({ stamp }) => {
          if (this.pausing) await this.pause();
          this.hit(stamp);
        },
      },
    });
  }

  async stop() {
    await this.runner.stop();
  }

  async left() {
    const { rows } = await this.pool.query("SELECT FROM graphile_worker._private_jobs LIMIT 1");
    return rows.length;
  }

  async work() {
    await this.start();
    await this.runner.promise;
  }

  async state() {
    const { rows } = await this.pool.query("SELECT locked_by IS NOT NULL AS locked FROM graphile_worker._private_jobs");
    return JSON.stringify(rows);
  }
}

await main(Graphile, ["graphile-worker", "pg"]);
