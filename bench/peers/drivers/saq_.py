# mypy: ignore-errors
# ruff: noqa: ANN001, ANN202
"""SAQ on Redis: hiredis, uvloop, 100 jobs at once; it has no bulk enqueue, so 200 single ones are awaited together.

Results are kept (as by default) for the zombie scenario only: elsewhere `ttl=-1` drops a job when it is complete.
Recovery: the job's `heartbeat` (off by default; then its `timeout` of 10 s counts) at 3 s, told by `job.update()` each
second, and the timer `sweep` (default 60 s) at 2 s; the sweep then waits 5 s for the dead worker to answer.
"""

import asyncio
import contextlib
import logging

from common import Peer, main
from saq import Queue, Worker

logging.disable(logging.ERROR)
TOGETHER = 200


class Saq(Peer):
    packages = ("saq", "redis", "hiredis", "uvloop")

    async def open(self) -> None:
        self._queue = Queue.from_url(self.url, name="bench")
        await self._queue.connect()
        self._last = None

    async def _job(self, ctx, *, stamp=0.0):
        if self.pausing:
            beats = asyncio.create_task(self._beat(ctx["job"])) if self.options.journal else None
            await self.pause()
            if beats:
                beats.cancel()
        self.hit(stamp)
        return self.result()

    @staticmethod
    async def _beat(job) -> None:
        while True:
            await asyncio.sleep(1)
            await job.update()

    async def bulk(self, count: int) -> None:
        for _ in range(0, count, TOGETHER):
            await asyncio.gather(*[self._queue.enqueue("job", ttl=-1) for _ in range(TOGETHER)])

    async def one(self, stamp: float) -> None:
        if self.options.scenario in ("kill", "zombie"):
            self._last = await self._queue.enqueue("job", timeout=0, heartbeat=3, retries=10)
        else:
            await self._queue.enqueue("job", stamp=stamp, ttl=-1)

    async def start(self) -> None:
        self._worker = Worker(self._queue, functions=[("job", self._job)], concurrency=100)
        self._running = asyncio.create_task(self._worker.start())

    async def stop(self) -> None:
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self._worker.stop(), 10)

    async def left(self) -> int:
        return await self._queue.count("incomplete")

    async def work(self) -> None:
        await Worker(self._queue, functions=[("job", self._job)], timers={"sweep": 2, "schedule": 1}).start()

    async def state(self) -> object:
        job = await self._queue.job(self._last.key)
        return f"{job.status.value} attempts {job.attempts} result {job.result} ended {job.completed}"


main(Saq)
