# mypy: ignore-errors
"""Callsheet itself, on the store that the URL names: enqueue_many in thousands, uvloop, 100 jobs at once.

Recovery: the worker's lease (default 30 s) at 3 s.
"""

import asyncio
import gc

from common import BATCH, Peer, main

from callsheet import Callsheet, Worker

END_OF_TIME = 2**53  # when every lease has run out


class CallsheetPeer(Peer):
    packages = ("callsheet", "uvloop")

    async def open(self) -> None:
        self._app = Callsheet(self.url)

        @self._app.task(queue="bench")
        async def noop(n: float = 0.0) -> None:
            if self.pausing:
                await self.pause()
            self.hit(n)

        self._job = noop
        await self._app.migrate()
        await self._app.__aenter__()
        self._engine = await self._app.engine()
        self._last = None
        gc.collect()  # as `callsheet worker` does before it begins
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)

    async def bulk(self, count: int) -> None:
        jobs = [{"n": 0.0} for _ in range(BATCH)]
        for _ in range(0, count, BATCH):
            await self._job.enqueue_many(jobs)

    async def one(self, stamp: float) -> None:
        self._last = await self._job.enqueue(n=stamp)

    async def start(self) -> None:
        self._worker = Worker(self._app, queues=("bench",), concurrency=100, lease=30.0)
        self._running = asyncio.create_task(self._worker.run())

    async def stop(self) -> None:
        self._worker.stop()
        await asyncio.wait([self._running], timeout=10)

    async def left(self) -> int:
        store = self._engine.store  # whether there is one, as the other drivers ask: a count reads them all
        return len((await store.ready_jobs(1)).jobs) or len(await store.with_expired_lease(1, now=END_OF_TIME))

    async def work(self) -> None:
        await Worker(self._app, queues=("bench",), concurrency=5, lease=3.0).run()

    async def state(self) -> object:
        job = await self._last.get()
        attempts = [str(attempt.outcome) for attempt in await self._engine.store.attempts(self._last.id)]
        return f"{job.status.value} attempts {attempts}"


main(CallsheetPeer)
