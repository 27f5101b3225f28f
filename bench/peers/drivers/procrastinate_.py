# mypy: ignore-errors
# ruff: noqa: ANN001, ANN202
"""procrastinate on PostgreSQL: psycopg (C), uvloop, batch_defer, 50 jobs at once, successful jobs deleted.

Recovery: workers beat every 10 s by default (here 1 s); putting a dead worker's jobs back is left to the application:
a periodic task that asks for the jobs of workers silent for 30 s by default (here 3 s), as its documentation shows. It
runs every second here.
"""

import asyncio
import logging

import procrastinate
from common import BATCH, Peer, main

logging.getLogger("procrastinate").setLevel(logging.CRITICAL)


class Procrastinate(Peer):
    packages = ("procrastinate", "psycopg", "uvloop")

    async def open(self) -> None:
        connector = procrastinate.PsycopgConnector(conninfo=self.url, min_size=4, max_size=20)
        self._app = procrastinate.App(connector=connector)

        @self._app.task(name="job", queue="bench")
        async def job(stamp=0.0):
            if self.pausing:
                await self.pause()
            self.hit(stamp)
            return self.result()

        self._job = job
        await self._app.open_async()
        if await self._rows("SELECT to_regclass('procrastinate_jobs')::text AS name") == [{"name": None}]:
            await self._app.schema_manager.apply_schema_async()

    async def bulk(self, count: int) -> None:
        jobs = [{"stamp": 0.0}] * BATCH
        for _ in range(0, count, BATCH):
            await self._job.batch_defer_async(*jobs)

    async def one(self, stamp: float) -> None:
        await self._job.defer_async(stamp=stamp)

    async def start(self) -> None:
        self._running = asyncio.create_task(
            self._app.run_worker_async(
                queues=["bench"], concurrency=50, delete_jobs="successful", install_signal_handlers=False
            )
        )

    async def stop(self) -> None:
        self._running.cancel()
        await asyncio.wait([self._running], timeout=10)

    async def left(self) -> int:
        return len(await self._rows("SELECT id FROM procrastinate_jobs WHERE status IN ('todo', 'doing') LIMIT 1"))

    async def work(self) -> None:
        @self._app.periodic(cron="* * * * * */1")
        @self._app.task(name="put_back", queue="bench", queueing_lock="put_back", pass_context=True)
        async def put_back(context, timestamp):  # noqa: ARG001 - its given arguments
            for job in await self._app.job_manager.get_stalled_jobs(seconds_since_heartbeat=3):
                await self._app.job_manager.retry_job(job)

        await self._app.run_worker_async(
            queues=["bench"], concurrency=5, update_heartbeat_interval=1, stalled_worker_timeout=3
        )

    async def state(self) -> object:
        rows = await self._rows(
            "SELECT status::text, attempts FROM procrastinate_jobs WHERE task_name = 'job' ORDER BY id"
        )
        return [(row["status"], row["attempts"]) for row in rows]

    async def _rows(self, query: str) -> list:
        return await self._app.connector.execute_query_all_async(query)


main(Procrastinate)
