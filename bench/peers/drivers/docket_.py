# mypy: ignore-errors
# ruff: noqa: ANN003
"""docket (pydocket) on Redis Streams: add_many, uvloop, 50 jobs at once (100 exhaust its pool of connections).

`minimum_check_interval` (default 250 ms) is at 1 ms: with the default it runs `concurrency` jobs in each 250 ms.

Recovery: `redelivery_timeout` (default 5 minutes) at 3 s; workers renew what they run four times in it.
"""

import asyncio
import contextlib
import logging
from datetime import timedelta

from common import BATCH, Peer, main
from docket import Docket, Worker

logging.disable(logging.ERROR)


class DocketPeer(Peer):
    packages = ("pydocket", "redis", "hiredis", "uvloop")

    async def open(self) -> None:
        self._docket = Docket(
            name="bench", url=self.url, execution_ttl=timedelta(minutes=5 if self._keeps_results() else 0)
        )
        await self._docket.__aenter__()
        self._last = None

        async def job(stamp: float = 0.0) -> int | None:
            if self.pausing:
                await self.pause()
            self.hit(stamp)
            return self.result()

        self._job = job
        self._docket.register(job)

    def _keeps_results(self) -> bool:
        return self.options.scenario in ("zombie", "worker")

    async def bulk(self, count: int) -> None:
        for _ in range(0, count, BATCH):
            await self._docket.add_many([self._docket.call(self._job)() for _ in range(BATCH)])

    async def one(self, stamp: float) -> None:
        self._last = await self._docket.add(self._job)(stamp)

    async def start(self) -> None:
        self._running = asyncio.create_task(
            self._serve(concurrency=50, minimum_check_interval=timedelta(milliseconds=1))
        )

    async def _serve(self, **settings) -> None:
        async with Worker(self._docket, **settings) as worker:
            await worker.run_forever()

    async def stop(self) -> None:
        self._running.cancel()
        await asyncio.wait([self._running], timeout=10)

    async def left(self) -> int:
        async with self._docket.redis() as redis:
            return await redis.xlen(self._docket.stream_key)

    async def work(self) -> None:
        await self._serve(redelivery_timeout=timedelta(seconds=3))

    async def state(self) -> object:
        execution = await self._docket.get_execution(self._last.key)
        if execution is None:
            return "gone"
        result = None
        with contextlib.suppress(Exception):
            result = await asyncio.wait_for(execution.get_result(), 1)
        return f"{execution.state.value} by {execution.worker} result {result} ended {execution.completed_at}"


main(DocketPeer)
