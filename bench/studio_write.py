"""The writer of a soak: `python -m bench.studio_write STORE_URL EVENTS_PER_S`. Jobs come, tell of themselves and end.

It runs until its input ends, and tells each second in a line how many events it has written.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time

import uvloop

from bench.studio_stage import LEASE_MS, QUEUES, ended, new_job
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
    """One engine and the jobs that run on it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._chance = random.Random(1)
        self._running: list[Job] = []
        self._made = 0
        self.written = 0

    async def fill_up(self) -> None:
        """New jobs for those that have ended; each brings two events."""
        count = AT_ONCE - len(self._running)
        if not count:
            return
        made = [new_job(job_id, 8 * (self._made + n), 0) for n, job_id in enumerate(new_ids(count))]
        self._made += count
        await self._engine.enqueue(made)
        asked = ClaimRequest(f"soak-{self._made % 4}", QUEUES, limit=count, lease_ms=LEASE_MS)
        self._running += await self._engine.claim(asked)
        self.written += 2 * count

    async def tell(self, count: int) -> None:
        """So many events of jobs that run: most are facts, some an end."""
        chosen = self._chance.sample(range(len(self._running)), min(count, len(self._running)))
        moves = {n: self._move(self._running[n]) for n in chosen}
        answers = await self._engine.settle(list(moves.values()))
        if any(answer is not Settled.APPLIED for answer in answers):
            raise RuntimeError(f"a claim was lost: {answers}")
        self.written += len(moves)
        ended_now = {n for n, move in moves.items() if move.status.terminal}
        self._running = [job for n, job in enumerate(self._running) if n not in ended_now]

    def _move(self, job: Job) -> Settlement:
        if self._chance.random() * LIFE < 1:
            return ended(job, self._chance.randrange(1, 100)) or commands.succeed(job)
        match self._chance.randrange(4):
            case 0:
                return commands.advance(job, self._chance.choice(STAGES))
            case 1:
                return commands.note(job, NewEvent("log", "", '{"message":"a line of the log"}'))
            case _:
                return commands.progress(job, self._chance.uniform(0, 99), "a step further")


async def write(url: str, rate: float) -> None:
    """At a steady pace; what a slow moment has left is caught up with."""
    done = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    async with Engine.from_url(url) as engine:
        writer = Writer(engine)
        await writer.fill_up()
        begun, before, told = time.monotonic(), writer.written, 0
        while not done.done():
            since = time.monotonic() - begun
            await writer.fill_up()
            if (due := int(since * rate) - (writer.written - before)) > 0:
                await writer.tell(due)
            if since - told >= 1:
                told = int(since)
                print(writer.written - before, flush=True)
            await asyncio.sleep(TICK_S)


if __name__ == "__main__":
    uvloop.run(write(sys.argv[1], float(sys.argv[2])))
