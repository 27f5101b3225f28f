# mypy: ignore-errors
# ruff: noqa: ANN001, ANN202
"""pgqueuer on PostgreSQL, asyncpg pool, uvloop, batches of 1,000.

Of batches of 10, 100, 300 and 1,000 (three short runs each, in turns) these had the medians 2,648, 4,657, 6,938 and
7,211 jobs in a second.

Recovery: `heartbeat_timeout` (default 30 s) at 3 s, and `dequeue_timeout` (default 30 s) at 1 s, since a stale job is
found by the next dequeue only. PostgreSQL commits synchronously; the log table is left as it is installed: logged.
"""

import asyncio
import logging
from datetime import timedelta

import asyncpg
from common import BATCH, Peer, main
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.queries import Queries

logging.getLogger("pgqueuer").setLevel(logging.ERROR)


class Pgqueuer(Peer):
    packages = ("pgqueuer", "asyncpg", "uvloop")

    async def open(self) -> None:
        self._pool = await asyncpg.create_pool(self.url, min_size=4, max_size=10)
        self._queries = Queries(AsyncpgPoolDriver(self._pool))
        if not await self._queries.has_table("pgqueuer"):
            await self._queries.install()

    async def bulk(self, count: int) -> None:
        for _ in range(0, count, BATCH):
            await self._queries.enqueue(["job"] * BATCH, [None] * BATCH, [0] * BATCH)

    async def one(self, stamp: float) -> None:
        await self._queries.enqueue("job", str(stamp).encode(), 0)

    def _app(self) -> PgQueuer:
        app = PgQueuer(AsyncpgPoolDriver(self._pool))

        @app.entrypoint("job")
        async def job(job):
            if self.pausing:
                await self.pause()
            self.hit(float(job.payload or 0))

        return app

    async def start(self) -> None:
        self._worker = self._app()
        self._running = asyncio.create_task(self._worker.run(batch_size=1000))

    async def stop(self) -> None:
        self._worker.shutdown.set()
        await asyncio.wait([self._running], timeout=10)

    async def left(self) -> int:
        return await self._pool.fetchval("SELECT count(*) FROM (SELECT FROM pgqueuer LIMIT 1) AS found")

    async def work(self) -> None:
        second = timedelta(seconds=1)
        await self._app().run(dequeue_timeout=second, heartbeat_timeout=3 * second)

    async def state(self) -> object:
        rows = await self._pool.fetch("SELECT status::text FROM pgqueuer")
        log = await self._pool.fetchval("SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'")
        return f"queue {[row[0] for row in rows]}, successes logged {log}"


main(Pgqueuer)
