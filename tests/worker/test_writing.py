"""How the ends and reports of runs leave a worker: in batches, at most two concurrently, each run's writes in order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import pytest

from callsheet import Callsheet, Context, Worker
from callsheet.engine import Engine
from callsheet.kernel.errors import DuplicateJob, StoreError
from callsheet.kernel.job import Status
from callsheet.kernel.settlement import Settlement
from callsheet.store.protocol import Settled

MANY = 2_000


class Door:
    """Admits settlements to the engine while open, and records requests and answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = asyncio.Event()
        self.inside: list[Sequence[Settlement]] = []
        self.most_inside = 0
        self.passed: list[Sequence[Settlement]] = []
        settle = Engine.settle

        async def through(engine: Engine, settlements: Sequence[Settlement]) -> list[Settled]:
            self.inside.append(settlements)
            self.most_inside = max(self.most_inside, len(self.inside))
            await self.open.wait()
            answers = await settle(engine, settlements)
            self.inside.remove(settlements)
            self.passed.append(settlements)
            return answers

        monkeypatch.setattr(Engine, "settle", through)

    @contextlib.asynccontextmanager
    async def worker(self, app: Callsheet) -> AsyncIterator[Worker]:
        """A worker behind this door, which is open when it stops."""
        worker = app.worker(poll=3600.0, housekeeping=False)
        running = asyncio.create_task(worker.run())
        try:
            async with asyncio.timeout(60):
                yield worker
        finally:
            self.open.set()
            worker.stop()
            await running


async def test_a_second_batch_goes_beside_the_first_when_it_is_half_full(
    small: Callsheet, monkeypatch: pytest.MonkeyPatch
) -> None:
    @small.task
    async def work() -> None:
        pass

    await work.enqueue_many([{}] * MANY)
    door = Door(monkeypatch)
    async with door.worker(small) as worker:
        while len(door.inside) < 2 or worker.unsettled < MANY:
            await asyncio.sleep(0.001)
        engine = await small.engine()
        assert len(door.inside[1]) >= engine.store.batch // 2
        door.open.set()
        while worker.unsettled:
            await asyncio.sleep(0.001)
    assert door.most_inside == 2
    assert (await engine.store.counts())["default"] == {Status.SUCCEEDED: MANY}


async def test_the_writes_of_a_run_go_one_after_another(small: Callsheet, monkeypatch: pytest.MonkeyPatch) -> None:
    has_reported = asyncio.Event()

    @small.task
    async def tell(ctx: Context) -> None:
        ctx.stage("first")
        ctx.progress(10)
        ctx.log("a word")
        has_reported.set()

    @small.task
    async def work() -> None:
        pass

    job = await tell.enqueue()
    door = Door(monkeypatch)
    async with door.worker(small):
        await has_reported.wait()
        while not door.inside:
            await asyncio.sleep(0.001)
        await work.enqueue_many([{}] * MANY)  # enough for a second batch, which must not have more of that run
        while len(door.inside) < 2:
            await asyncio.sleep(0.001)
        assert [s.job_id == job.id for batch in door.inside for s in batch].count(True) == 1
        door.open.set()
        await job.result()
    kinds = [s.event.type for batch in door.passed for s in batch if s.job_id == job.id and s.event is not None]
    assert kinds == ["stage", "progress", "log", "done"]


@pytest.mark.parametrize("error", [RuntimeError("a closed transport"), AttributeError("setsockopt"), StoreError("no")])
async def test_an_error_that_is_not_about_a_settlement_ends_no_job(
    small: Callsheet, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    settle, errors = Engine.settle, [error] * 5

    async def breaks(engine: Engine, settlements: Sequence[Settlement]) -> list[Settled]:
        if errors:
            raise errors.pop()
        return await settle(engine, settlements)

    @small.task(max_attempts=1)
    async def work(n: int) -> int:
        return n

    jobs = await work.enqueue_many([{"n": n} for n in range(3)])
    monkeypatch.setattr(Engine, "settle", breaks)
    await small.worker(housekeeping=False).run(burst=True)
    ended_jobs = [await job.get() for job in jobs]
    assert [(job.status, job.result, job.attempt_count) for job in ended_jobs] == [
        (Status.SUCCEEDED, str(n), 1) for n in range(3)
    ]


async def test_an_error_about_a_settlement_ends_its_job_and_no_other(
    small: Callsheet, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle = Engine.settle

    async def refuses(engine: Engine, settlements: Sequence[Settlement]) -> list[Settled]:
        if any(s.result == "1" for s in settlements):
            raise DuplicateJob("a follow-up's id is taken")
        return await settle(engine, settlements)

    @small.task(max_attempts=1)
    async def work(n: int) -> int:
        return n

    jobs = await work.enqueue_many([{"n": n} for n in range(3)])
    monkeypatch.setattr(Engine, "settle", refuses)
    await small.worker(housekeeping=False).run(burst=True)
    assert [(await job.get()).status for job in jobs] == [Status.SUCCEEDED, Status.FAILED, Status.SUCCEEDED]
