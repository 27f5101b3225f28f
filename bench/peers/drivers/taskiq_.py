# mypy: ignore-errors
# ruff: noqa: ANN202
"""taskiq with taskiq-redis' RedisStreamBroker (the one that acknowledges), no results, uvloop, 100 jobs at once.

It has no bulk enqueue: 200 single ones are awaited together. Acknowledged entries are not deleted by the broker; a
stream's length is bounded by `maxlen` only, which is left off, since it may cut jobs that nobody has read. Recovery:
`idle_timeout` (default 10 minutes) at 10 s, with `unacknowledged_lock_timeout` (default none) at 5 s. The timeout
counts from the delivery and is not renewed, so a longer job runs twice. The broker looks for such deliveries only after
it has read a new message, so in an idle queue a killed worker's job is not found.
"""

import asyncio
import contextlib
import logging

from common import Peer, main
from redis.asyncio import Redis
from taskiq.api import run_receiver_task
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

logging.disable(logging.ERROR)
TOGETHER = 200


class Taskiq(Peer):
    packages = ("taskiq", "taskiq-redis", "redis", "hiredis", "uvloop")

    async def open(self) -> None:
        self._redis = Redis.from_url(self.url)
        self._last = None
        self._broker, self._job = await self._make_broker()

    async def _make_broker(self):
        recovery = {"idle_timeout": 10_000, "unacknowledged_lock_timeout": 5.0, "xread_block": 500}
        broker = RedisStreamBroker(
            self.url, consumer_id="0", max_connection_pool_size=50, **(recovery if self.options.journal else {})
        )
        if self.options.scenario == "zombie" or self.options.journal:
            broker = broker.with_result_backend(RedisAsyncResultBackend(self.url))

        @broker.task(task_name="job")
        async def job(stamp: float = 0.0) -> int | None:
            if self.pausing:
                await self.pause()
            self.hit(stamp)
            return self.result()

        await broker.startup()
        return broker, job

    async def bulk(self, count: int) -> None:
        for _ in range(0, count, TOGETHER):
            await asyncio.gather(*[self._job.kiq() for _ in range(TOGETHER)])

    async def one(self, stamp: float) -> None:
        self._last = await self._job.kiq(stamp)

    async def start(self) -> None:
        worker, _ = await self._make_broker()
        self._running = asyncio.create_task(run_receiver_task(worker, max_async_tasks=100, max_prefetch=100))

    async def stop(self) -> None:
        self._running.cancel()
        await asyncio.wait([self._running], timeout=10)
        await asyncio.sleep(2.5 if self.options.rounds > 1 else 0)  # until its blocked read has ended

    async def left(self) -> int:
        group = (await self._redis.xinfo_groups("taskiq"))[0]
        last = (await self._redis.xinfo_stream("taskiq"))["last-generated-id"]
        return group["pending"] + (group["last-delivered-id"] != last)

    async def work(self) -> None:
        await run_receiver_task(self._broker, max_async_tasks=5, max_prefetch=0)

    async def state(self) -> object:
        result = None
        with contextlib.suppress(Exception):
            result = (await self._last.get_result()).return_value
        return f"pending {(await self._redis.xinfo_groups('taskiq'))[0]['pending']} result {result}"


main(Taskiq)
