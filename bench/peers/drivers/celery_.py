# mypy: ignore-errors
# ruff: noqa: ANN001, ANN202
"""Celery with Redis as broker: acks_late, results ignored, 64 prefetched, no gossip, mingle or events.

It has no bulk enqueue. Of its pools `solo` had the highest median of three short runs (747 jobs in a second, threads
538, prefork 536), but also the widest spread (336–928); PEER_POOL names another. The scenarios with two workers use
`prefork`, its default. Recovery: the broker's `visibility_timeout` (default one hour) at 5 s. The timeout counts from
the delivery and is not renewed, so a longer job runs twice. Workers look for such deliveries soon after their start,
then every 100 s. The zombie scenario keeps results in Redis.
"""

import logging
import os

from celery import Celery
from common import main
from outside import OutsidePeer
from redis import Redis

POOL = os.environ.get("PEER_POOL", "solo")
logging.disable(logging.ERROR)


class CeleryPeer(OutsidePeer):
    packages = ("celery", "kombu", "redis", "hiredis")

    async def open(self) -> None:
        faulty = self.options.scenario in ("kill", "zombie") or self.options.journal
        self._app = Celery("bench", broker=self.url, backend=self.url if faulty else None)
        self._app.conf.update(
            task_acks_late=True,
            task_reject_on_worker_lost=True,
            task_ignore_result=not faulty,
            task_default_queue="bench",
            worker_prefetch_multiplier=64,
            broker_connection_retry_on_startup=True,
            broker_transport_options={"visibility_timeout": 5} if faulty else {},
        )

        @self._app.task(name="job")
        def job(stamp=0.0):
            if self.pausing:
                self.pause_blocking()
            self.hit(stamp)
            return self.result()

        self._job = job
        self._redis = Redis.from_url(self.url)
        self._last = None

    async def bulk(self, count: int) -> None:
        with self._app.producer_pool.acquire(block=True) as producer:
            for _ in range(count):
                self._job.apply_async(producer=producer)

    async def one(self, stamp: float) -> None:
        self._last = self._job.delay(stamp)

    async def left(self) -> int:
        return self._redis.llen("bench") + self._redis.hlen("unacked")

    async def work(self) -> None:
        pool = "prefork" if self.options.journal else POOL
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=CRITICAL"]
        self._app.worker_main(["worker", "--pool", pool, "--concurrency", "2", *quiet])

    async def state(self) -> object:
        meta = self._redis.get(f"celery-task-meta-{self._last.id}")
        return f"unacked {self._redis.hlen('unacked')} waiting {self._redis.llen('bench')} stored {meta}"


main(CeleryPeer)
