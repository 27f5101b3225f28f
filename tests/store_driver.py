"""Drives a store in tests: its verbs with short arguments and a virtual clock."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from callsheet.kernel import commands
from callsheet.kernel.job import Event, Job, NewJob
from callsheet.kernel.settlement import Settlement
from callsheet.store.protocol import ClaimRequest, Enqueued, HeartbeatResult, Settled, Store

T0 = 1_800_000_000_000
_numbers = itertools.count(1)


def new_job(kind: str = "resize", **fields: Any) -> NewJob:
    """Return a new job with a unique id; ids rise in the order of making."""
    job_id = fields.pop("job_id", None) or str(uuid.UUID(int=(next(_numbers) << 64) + uuid.uuid4().int % 2**60))
    return NewJob(job_id=job_id, kind=kind, **fields)


@dataclass
class StoreDriver:
    """Calls the verbs of one store at a virtual time, `now`."""

    store: Store
    now: int = T0
    workers: itertools.count[int] = field(default_factory=itertools.count)

    def later(self, ms: int) -> int:
        self.now += ms
        return self.now

    async def enqueue(self, *batch: NewJob) -> list[Enqueued]:
        return await self.store.enqueue(batch, now=self.now)

    async def add(self, **fields: Any) -> str:
        (answer,) = await self.enqueue(new_job(**fields))
        return answer.job_id

    async def claim(self, *queues: str, limit: int = 10, worker: str = "w1", **more: Any) -> list[Job]:
        request = ClaimRequest(worker, queues or ("default",), limit, **{"lease_ms": 30_000, **more})
        return await self.store.claim(request, now=self.now)

    async def claim_one(self, *queues: str, **more: Any) -> Job:
        (job,) = await self.claim(*queues, limit=1, **more)
        return job

    async def running(self, **fields: Any) -> Job:
        """Enqueue and claim a job; return it."""
        await self.add(**fields)
        return await self.claim_one(fields.get("queue", "default"))

    async def settle(self, *settlements: Settlement) -> list[Settled]:
        return await self.store.settle(settlements, now=self.now)

    async def done(self, job: Job, result: str = "null") -> None:
        assert await self.settle(commands.succeed(job, result)) == [Settled.APPLIED]

    async def beat(self, *jobs: Job, lease_ms: int = 30_000) -> list[HeartbeatResult]:
        return await self.store.heartbeat([j.claim for j in jobs], lease_ms=lease_ms, now=self.now)

    async def get(self, job_id: str) -> Job:
        (job,) = await self.store.get([job_id])
        assert job is not None
        return job

    async def events(self, job_id: str, after: int = 0, limit: int = 1000) -> list[Event]:
        return await self.store.events({job_id: after}, limit)

    async def types(self, job_id: str) -> list[str]:
        return [event.type for event in await self.events(job_id)]

    async def ids(self, jobs: Sequence[Job]) -> list[str]:
        return [job.job_id for job in jobs]
