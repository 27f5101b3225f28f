# mypy: ignore-errors
# ruff: noqa: ANN001, ANN202
"""awa (awa-pg) on PostgreSQL: its queue storage, direct COPY in bulk, 500 jobs at once, claims of 500, polled every 10 ms.

A job counts as drained when its handler has run: the client's own count of what is left took 13 s to answer here.

Recovery: a heartbeat (default: beat 30 s, stale after 90 s, looked for every 30 s) at 1 s, 3 s and 1 s.
"""

import asyncio
import json
from dataclasses import dataclass

from awa import AsyncClient
from common import BATCH, Peer, main

QUEUE = {"name": "bench", "max_workers": 500, "claim_batch_size": 500}


@dataclass
class Job:
    stamp: float = 0.0


class Awa(Peer):
    packages = ("awa-pg", "uvloop")

    async def open(self) -> None:
        self._client = AsyncClient(self.url, max_connections=20)
        await self._client.migrate()
        if json.loads(await self._client.storage_status())["active_engine"] != "queue_storage":
            await self._client.install_queue_storage()
        self._last = None
        self._register(self._client)

    def _register(self, client: AsyncClient) -> None:
        @client.task(Job, queue="bench")
        async def job(job):
            if self.pausing:
                await self.pause()
            self.hit(job.args.stamp)

    async def bulk(self, count: int) -> None:
        jobs = [Job()] * BATCH
        for _ in range(0, count, BATCH):
            await self._client.enqueue_many_copy(jobs, queue="bench")

    async def one(self, stamp: float) -> None:
        self._last = await self._client.insert(Job(stamp), queue="bench")

    async def start(self) -> None:
        self._worker = AsyncClient(self.url, max_connections=20)
        self._register(self._worker)
        await self._worker.start([QUEUE], poll_interval_ms=10)

    async def stop(self) -> None:
        await self._worker.shutdown()
        await self._worker.close()

    async def work(self) -> None:
        await self._client.start(
            [QUEUE],
            heartbeat_interval_ms=1000,
            heartbeat_staleness_ms=3000,
            heartbeat_rescue_interval_ms=1000,
            leader_election_interval_ms=1000,
            promote_interval_ms=250,
        )
        await asyncio.Event().wait()

    async def state(self) -> object:
        job = await self._client.get_job(self._last.id)
        return f"{job.state} attempt {job.attempt} ended {job.finalized_at}"


main(Awa)
