"""Writes the jobs of a soak: `python -m bench.studio_write STORE_URL EVENTS_PER_S`.

Jobs are enqueued, report progress and end, until standard input ends. Each second prints one line with the number of
events written so far.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time

import uvloop

from bench.studio_stage import LEASE_MS, QUEUES, new_job, settlement_for
from callsheet.engine import Engine
from callsheet.engine.ids import new_ids
from callsheet.kernel import commands
from callsheet.kernel.job import Job, NewEvent
from callsheet.kernel.settlement import Settlement
from callsheet.store.protocol import ClaimRequest, Settled

AT_ONCE = 200  # jobs that run
TICK_S = 0.1
LIFE = 7  # events of a job between its start and its end, on average
STAGES = ("reading", "working", "writing")


class Writer:
    """An engine and running jobs."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._chance = random.Random(1)
        self._running: list[Job] = []
        self._job_count = 0
        self.event_count = 0

    async def fill_up(self) -> None:
        """New jobs for those that have ended; each brings two events."""
        count = AT_ONCE - len(self._running)
        if not count:
            return
        new_jobs = [new_job(job_id, 8 * (self._job_count + n), 0) for n, job_id in enumerate(new_ids(count))]
        self._job_count += count
        await self._engine.enqueue(new_jobs)
        request = ClaimRequest(f"soak-{self._job_count % 4}", QUEUES, limit=count, lease_ms=LEASE_MS)
        self._running += await self._engine.claim(request)
        self.event_count += 2 * count

    async def tell(self, count: int) -> None:
        """Settle `count` running jobs: most get a fact, some end."""
        positions = self._chance.sample(range(len(self._running)), min(count, len(self._running)))
        moves = {n: self._move(self._running[n]) for n in positions}
        answers = await self._engine.settle(list(moves.values()))
        if any(answer is not Settled.APPLIED for answer in answers):
            raise RuntimeError(f"a claim was lost: {answers}")
        self.event_count += len(moves)
        ended_now = {n for n, move in moves.items() if move.status.terminal}
        self._running = [job for n, job in enumerate(self._running) if n not in ended_now]

    def _move(self, job: Job) -> Settlement:
        if self._chance.random() * LIFE < 1:
            return settlement_for(job, self._chance.randrange(1, 100)) or commands.succeed(job)
        match self._chance.randrange(4):
            case 0:
                return commands.advance(job, self._chance.choice(STAGES))
            case 1:
                return commands.note(job, NewEvent("log", "", '{"message":"a line of the log"}'))
            case _:
                return commands.progress(job, self._chance.uniform(0, 99), "a step further")


async def write(url: str, rate: float) -> None:
    """Write events at a steady rate, catching up after a slow moment."""
    input_end = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    async with Engine.from_url(url) as engine:
        writer = Writer(engine)
        await writer.fill_up()
        start, before, reported_s = time.monotonic(), writer.event_count, 0
        while not input_end.done():
            since = time.monotonic() - start
            await writer.fill_up()
            if (due := int(since * rate) - (writer.event_count - before)) > 0:
                await writer.tell(due)
            if since - reported_s >= 1:
                reported_s = int(since)
                print(writer.event_count - before, flush=True)
            await asyncio.sleep(TICK_S)


if __name__ == "__main__":
    uvloop.run(write(sys.argv[1], float(sys.argv[2])))
