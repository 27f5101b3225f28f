"""The writer of events: jobs that run, and facts about them at a steady pace, through the engine's own verbs."""

from __future__ import annotations

import asyncio
import time

from bench.http.talk import answer
from callsheet.engine import Engine
from callsheet.engine.ids import new_ids
from callsheet.kernel import commands
from callsheet.kernel.job import Job, NewEvent, NewJob
from callsheet.store.protocol import ClaimRequest, Settled

LEASE_MS = 600_000
TICK_S = 0.01
MOST = 500


class Writer:
    """An engine and its claimed jobs."""

    def __init__(self) -> None:
        self._jobs: list[Job] = []
        self._number = 0

    async def open(self, url: str, jobs: int, requester_id: str) -> list[str]:
        """Create jobs and begin them all; their ids."""
        self._engine = await Engine.from_url(url).__aenter__()
        new_jobs = [
            NewJob(job_id, "chat", requester_id=requester_id, contract="redis_gateway", ttl_s=86_400)
            for job_id in new_ids(jobs)
        ]
        for i in range(0, jobs, MOST):
            await self._engine.enqueue(new_jobs[i : i + MOST])
        while len(self._jobs) < jobs:
            request = ClaimRequest("bench", limit=min(MOST, jobs - len(self._jobs)), lease_ms=LEASE_MS)
            self._jobs += await self._engine.claim(request)
        return [job.job_id for job in self._jobs]

    async def write(
        self, jobs: int, rate: float, seconds: float, type: str = "token"
    ) -> list[tuple[int, int, int, int]]:
        """`rate` events in a second for the first jobs in turn; (first number, how many, asked, acknowledged) of each write."""
        start, count, writes = time.monotonic(), 0, []
        while (since := time.monotonic() - start) < seconds:
            due = min(MOST, int(since * rate) - count)
            if due > 0:
                count += due
                writes.append(await self._settle(jobs, due, type))
            await asyncio.sleep(TICK_S)
        return writes

    async def _settle(self, jobs: int, count: int, type: str) -> tuple[int, int, int, int]:
        first, asked_ns = self._number, time.monotonic_ns()
        self._number += count
        notes = [
            commands.note(self._jobs[n % jobs], NewEvent(type, "", f'{{"n":{n},"message":"#{n}"}}'))
            for n in range(first, first + count)
        ]
        answers = await self._engine.settle(notes)
        if any(answer is not Settled.APPLIED for answer in answers):
            raise RuntimeError(f"a claim was lost: {answers}")
        return first, count, asked_ns, time.monotonic_ns()

    async def close(self) -> None:
        """Close the store; the jobs stay claimed."""
        await self._engine.__aexit__(None, None, None)
        self._jobs = []


if __name__ == "__main__":
    writer = Writer()
    answer({"open": writer.open, "write": writer.write, "close": writer.close})
