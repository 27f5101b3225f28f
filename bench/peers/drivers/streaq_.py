# mypy: ignore-errors
# ruff: noqa: ANN003, ANN202
"""streaQ on Redis Streams: enqueue_many (a pipeline), uvloop, 100 jobs at once, no result kept (`ttl=0`).

Recovery: `idle_timeout` (default 60 s) at 3 s; workers renew what they run.
"""

import asyncio
import logging

from common import BATCH, Peer, main
from streaq import Worker

logging.disable(logging.ERROR)


class Streaq(Peer):
    packages = ("streaq", "coredis", "uvloop")

    async def open(self) -> None:
        self._client, self._job = self._make_worker(100)
        await self._client.__aenter__()
        self._last = None

    def _make_worker(self, concurrency: int, **settings):
        worker = Worker(
            redis_url=self.url, concurrency=concurrency, queue_name="bench", handle_signals=False, **settings
        )
        keeps_results = self.options.scenario in ("zombie", "worker")

        @worker.task(name="job", ttl=300 if keeps_results else 0, max_tries=None)
        async def job(stamp: float = 0.0) -> int | None:
            if self.pausing:
                await self.pause()
            self.hit(stamp)
            return self.result()

        return worker, job

    async def bulk(self, count: int) -> None:
        for _ in range(0, count, BATCH):
            await self._client.enqueue_many([self._job.enqueue() for _ in range(BATCH)])

    async def one(self, stamp: float) -> None:
        self._last = await self._job.enqueue(stamp)

    async def start(self) -> None:
        self._worker, _ = self._make_worker(100)
        self._running = asyncio.create_task(self._worker.run_async())

    async def stop(self) -> None:
        self._running.cancel()
        await asyncio.wait([self._running], timeout=10)

    async def left(self) -> int:
        return await self._client.queue_size()

    async def work(self) -> None:
        worker, _ = self._make_worker(5, idle_timeout=3)
        await worker.run_async()

    async def state(self) -> object:
        status = await self._client.status_by_id(self._last.id)
        try:
            result = (await self._client.result_by_id(self._last.id, timeout=1)).result
        except TimeoutError:
            result = None
        return f"{status.name} result {result}"


main(Streaq)
