# mypy: ignore-errors
# ruff: noqa: ANN001, ANN202
"""FlexiQ on SQLite or PostgreSQL: enqueue_many, eight threads, claims of 100, polled every 5 ms, no log of each job.

Its `push_dispatch` was slower than polling on both stores (about 10 and 60 jobs in a second), so the driver turns
`push_dispatch` off.

Recovery: a worker sends a heartbeat every 5 s and other workers reap a dead one; neither time can be set. Jobs keep
their result rows.
"""

import asyncio
import logging
import threading

from common import BATCH, Peer, main
from flexiq import Queue

logging.disable(logging.INFO)


class FlexiQ(Peer):
    packages = ("flexiq",)

    async def open(self) -> None:
        self._queue, self._job = self._client()
        self._last = None

    def _client(self):
        sqlite = self.url.startswith("sqlite")
        place = (
            {"db_path": self.url.removeprefix("sqlite:///")} if sqlite else {"backend": "postgres", "db_url": self.url}
        )
        queue = Queue(workers=8, scheduler_batch_size=100, scheduler_poll_interval_ms=5, **place)

        @queue.task(name="job")
        def job(stamp=0.0):
            if self.pausing:
                self.pause_blocking()
            self.hit(stamp)
            return self.result()

        return queue, job

    async def bulk(self, count: int) -> None:
        for _ in range(0, count, BATCH):
            self._queue.enqueue_many("job", [()] * BATCH)

    async def one(self, stamp: float) -> None:
        self._last = self._job.delay(stamp)

    async def start(self) -> None:
        self._worker, _ = self._client()
        self._thread = threading.Thread(target=self._worker.run_worker, daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        self._worker.shutdown()
        self._thread.join(10)

    async def left(self) -> int:
        stats = self._queue.stats()
        return stats["pending"] + stats["running"]

    async def work(self) -> None:
        threading.Thread(target=self._queue.run_worker, daemon=True).start()
        await asyncio.Event().wait()

    async def state(self) -> object:
        job = self._queue.get_job(self._last.id).to_dict()
        return {name: job.get(name) for name in ("status", "retry_count", "completed_at", "result")}


main(FlexiQ)
