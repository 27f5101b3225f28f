# mypy: ignore-errors
# ruff: noqa: ANN001, ANN202
"""Dramatiq on Redis: one process of 16 threads; it has no bulk enqueue. Messages wait in Redis until acknowledged.

Of two, eight and 16 threads (three short runs each, in turns) 16 had the highest median: 1,945 jobs in a second.
Recovery: the broker's `heartbeat_timeout` (default 60 s) at 3 s, and `maintenance_chance` (default 1,000 in a million
fetches; it finds dead workers) at a million, so at each fetch.
"""

import asyncio
import logging

import dramatiq
from common import Peer, main
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import AgeLimit, Retries, ShutdownNotifications

logging.disable(logging.ERROR)


class Dramatiq(Peer):
    packages = ("dramatiq", "redis", "hiredis")

    async def open(self) -> None:
        recovery = {"heartbeat_timeout": 3000, "maintenance_chance": 1_000_000} if self.options.journal else {}
        self._broker = RedisBroker(
            url=self.url, middleware=[AgeLimit(), ShutdownNotifications(), Retries()], **recovery
        )
        dramatiq.set_broker(self._broker)

        @dramatiq.actor(actor_name="job", queue_name="bench")
        def job(stamp=0.0):
            if self.pausing:
                self.pause_blocking()
            self.hit(stamp)

        self._job = job

    async def bulk(self, count: int) -> None:
        for _ in range(count):
            self._job.send()

    async def one(self, stamp: float) -> None:
        self._job.send(stamp)

    async def start(self) -> None:
        self._worker = dramatiq.Worker(self._broker, worker_threads=16, worker_timeout=100)
        self._worker.start()

    async def stop(self) -> None:
        self._worker.stop()

    async def left(self) -> int:
        return self._broker.client.hlen("dramatiq:bench.msgs")

    async def work(self) -> None:
        await self.start()
        await asyncio.Event().wait()

    async def state(self) -> object:
        client = self._broker.client
        acks = {key: client.smembers(key) for key in client.keys("dramatiq:__acks__*bench*")}
        claimed_count = sum(map(len, acks.values()))
        return f"messages {client.hlen('dramatiq:bench.msgs')} waiting {client.llen('dramatiq:bench')} taken {claimed_count}"


main(Dramatiq)
