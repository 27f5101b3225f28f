# mypy: ignore-errors
"""RQ on Redis: enqueue_many, and its SimpleWorker, which does not fork for each job, with results dropped (ttl 0).

Recovery (with the default, forking worker, since a SimpleWorker does not beat during a job): a job's beat lasts
`job_monitoring_interval` (default 30 s, here 1 s) and 60 s more, which no setting shortens; `maintenance_interval`
(default 10 minutes) is at 1 s, `worker_ttl` (default 420 s) at 20 s, and the job has `Retry(max=10)`, without which it
would fail.
"""

import logging

from common import BATCH, main
from outside import OutsidePeer
from redis import Redis
from rq import Queue, Retry, SimpleWorker, Worker

logging.disable(logging.ERROR)
HERE = None


def job(stamp: float = 0.0) -> int | None:
    if HERE.pausing:
        HERE.pause_blocking()
    HERE.hit(stamp)
    return HERE.result()


class Rq(OutsidePeer):
    packages = ("rq", "redis", "hiredis")

    async def open(self) -> None:
        global HERE  # noqa: PLW0603 - RQ finds its function by name
        HERE = self
        self._redis = Redis.from_url(self.url)
        self._queue = Queue("bench", connection=self._redis)
        self._last = None

    async def bulk(self, count: int) -> None:
        jobs = [Queue.prepare_data("__main__.job", result_ttl=0) for _ in range(BATCH)]
        for _ in range(0, count, BATCH):
            self._queue.enqueue_many([data._replace(job_id=None) for data in jobs])

    async def one(self, stamp: float) -> None:
        if self.options.scenario in ("kill", "zombie"):
            self._last = self._queue.enqueue("__main__.job", retry=Retry(max=10), result_ttl=300)
        else:
            self._queue.enqueue("__main__.job", stamp, result_ttl=0)

    async def left(self) -> int:
        return self._queue.count + self._queue.started_job_registry.count

    async def work(self) -> None:
        queues = [self._queue]
        if self.options.journal:
            worker = Worker(
                queues, connection=self._redis, job_monitoring_interval=1, maintenance_interval=1, worker_ttl=20
            )
        else:
            worker = SimpleWorker(queues, connection=self._redis)
        worker.work(logging_level="CRITICAL")

    async def state(self) -> object:
        self._last.refresh()
        results = [result.return_value for result in self._last.results()]
        return f"{self._last.get_status().value} results {results} ended {self._last.ended_at}"


main(Rq)
