"""Leases from the worker's side: the worker's reaction to short and long store outages."""

from __future__ import annotations

import asyncio
import collections
import resource
import time
from pathlib import Path

import pytest

from callsheet import Callsheet, Context
from callsheet.engine import Engine, Housekeeping
from callsheet.kernel.errors import InvalidInput, StoreUnavailable
from callsheet.kernel.job import Status
from callsheet.worker.heartbeat import Heartbeat
from callsheet.worker.run import Run
from tests.running_worker import until, working
from tests.time_limits import within

from .conftest import events_of


class Outage:
    """Makes all verbs of an engine, and the heartbeats, fail while it lasts."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.on = False
        self.refused = collections.Counter[str]()
        self.overdue = 0  # beats for a run whose lease is over
        for owner, name in ((engine.store, "claim"), (engine.store, "settle"), (engine.store, "heartbeat")):
            monkeypatch.setattr(owner, name, self._failing(name, getattr(owner, name)))
        beat = Heartbeat._beat

        async def failing_beat(heartbeat: Heartbeat, store: object, runs: list[Run]) -> None:
            if self.on:
                self.overdue += any(run.expires_at < time.monotonic() for run in runs)
                await asyncio.sleep(0.05)
                return
            await beat(heartbeat, store, runs)  # type: ignore[arg-type]

        monkeypatch.setattr(Heartbeat, "_beat", failing_beat)

    def _failing(self, name: str, verb: object) -> object:
        async def call(*args: object, **kwargs: object) -> object:
            if self.on:
                self.refused[name] += 1
                raise StoreUnavailable("the cable is out")
            return await verb(*args, **kwargs)  # type: ignore[operator]

        return call


async def test_an_outcome_waits_for_a_store_that_is_away(small: Callsheet, monkeypatch: pytest.MonkeyPatch) -> None:
    outage = Outage(await small.engine(), monkeypatch)

    @small.task
    async def work() -> str:
        outage.on = True
        return "kept"

    job = await work.enqueue()
    async with working(small, lease=60.0) as worker:
        await until(lambda: outage.refused["settle"] > 2 or (outage.refused["settle"] and not worker.unsettled))
        assert worker.unsettled == 1
        outage.on = False
        assert await job.result(timeout=60) == "kept"
    assert (await job.get()).claim_version == 1


async def test_work_stops_when_the_lease_runs_out_by_the_workers_own_clock(
    small: Callsheet, monkeypatch: pytest.MonkeyPatch
) -> None:
    outage = Outage(await small.engine(), monkeypatch)
    stopped: list[str | None] = []

    @small.task(max_attempts=5)
    async def work(ctx: Context) -> str:
        if stopped:
            return "again"
        outage.on = True
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(ctx.stop_reason)
        return "never"

    job = await work.enqueue()
    async with working(small, lease=2.0):
        await until(lambda: stopped or outage.overdue > 20, within(2.0 + 2))
        assert stopped == ["lost"]
        outage.on = False
        assert await job.result(timeout=60) == "again"


async def test_an_outcome_waits_for_longer_than_its_lease(small: Callsheet, monkeypatch: pytest.MonkeyPatch) -> None:
    outage = Outage(await small.engine(), monkeypatch)

    @small.task(max_attempts=1)
    async def work() -> str:
        outage.on = True
        return "kept"

    job = await work.enqueue()
    async with working(small, lease=1.0, housekeeping=False) as worker:
        await until(lambda: outage.overdue or (not worker.unsettled and outage.refused["settle"]))
        tries = outage.refused["settle"]
        await until(lambda: outage.refused["settle"] > tries + 1 or not worker.unsettled)
        outage.on = False
        await until(lambda: not worker.unsettled)
    ended_job = await job.get()
    assert (ended_job.status, ended_job.attempt_count, ended_job.claim_version) == (Status.SUCCEEDED, 1, 1)


async def test_work_that_was_cut_off_goes_back_at_no_cost(small: Callsheet, monkeypatch: pytest.MonkeyPatch) -> None:
    outage = Outage(await small.engine(), monkeypatch)
    attempts: list[int] = []

    @small.task(max_attempts=1)
    async def work(ctx: Context) -> str:
        attempts.append(ctx.attempt)
        if len(attempts) > 1:
            return "again"
        outage.on = True
        await asyncio.Event().wait()
        return "never"

    job = await work.enqueue()
    async with working(small, lease=1.0, housekeeping=False) as worker:  # the test's own comes later
        await until(lambda: outage.refused["settle"] > 1 or (attempts and not worker.runs))
        outage.on = False
        await until(lambda: not worker.runs)
        async with Housekeeping(await small.engine()):
            assert await job.result(timeout=60) == "again"
    ended_job = await job.get()
    assert (attempts, ended_job.attempt_count, ended_job.lease_losses) == ([1, 1], 1, 0)
    assert "waiting" in await events_of(small, job.job_id)


async def test_a_worker_that_ends_does_not_wait_for_the_store_beyond_its_leases(
    small: Callsheet, monkeypatch: pytest.MonkeyPatch
) -> None:
    outage = Outage(await small.engine(), monkeypatch)

    @small.task
    async def work() -> None:
        outage.on = True

    job = await work.enqueue()
    worker = small.worker(lease=1.0, housekeeping=False)
    running = asyncio.create_task(worker.run())
    await until(lambda: outage.refused["settle"])
    worker.stop()
    await until(lambda: outage.overdue or running.done())
    tries = outage.refused["settle"]
    await until(lambda: outage.refused["settle"] > tries + 3 or running.done())
    outage.on = False
    await running
    assert (await job.get()).status is Status.RUNNING


async def test_work_stops_though_a_store_in_the_process_never_answers_a_heartbeat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Callsheet("sqlite::memory:") as app:
        engine, stopped = await app.engine(), list[str | None]()

        async def never(*_: object, **__: object) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(engine.store, "heartbeat", never)

        @app.task
        async def work(ctx: Context) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                stopped.append(ctx.stop_reason)

        await work.enqueue()
        async with working(app, lease=1.0, housekeeping=False):  # else the worker would find out by itself
            await until(lambda: stopped)
            assert stopped == ["lost"]


async def test_a_full_disk_loses_nothing(small: Callsheet) -> None:
    go = asyncio.Event()

    @small.task
    async def work(n: int) -> int:
        await go.wait()
        return n

    jobs = await work.enqueue_many([{"n": n} for n in range(20)])
    wal = Path(small.database_url.removeprefix("sqlite:///") + "-wal")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with working(small, concurrency=10, lease=60.0) as worker:
        await until(lambda: worker.slots_busy == 10)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (wal.stat().st_size, hard))  # writes now fail as on a full disk
            go.set()
            with pytest.raises(StoreUnavailable, match="SQLite cannot serve now"):
                await work.enqueue(n=99)
            await until(lambda: worker.unsettled == 10)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert [await job.result(timeout=60) for job in jobs] == list(range(20))
    assert {(await job.get()).claim_version for job in jobs} == {1}


async def test_a_claim_loop_goes_on_after_trouble(small: Callsheet, monkeypatch: pytest.MonkeyPatch) -> None:
    outage = Outage(await small.engine(), monkeypatch)

    @small.task
    async def work() -> str:
        return "done"

    outage.on = True
    async with working(small):
        job = await work.enqueue()
        await until(lambda: outage.refused.total() > 1)
        assert (await job.get()).status is Status.QUEUED
        outage.on = False
        assert await job.result(timeout=60) == "done"


async def test_a_long_job_keeps_its_lease(app: Callsheet) -> None:
    engine = await app.engine()

    @app.task
    async def long(ctx: Context) -> str:
        claimed_until = ctx.job.lease_expires_at or 0
        while await engine.store.with_expired_lease(1, now=claimed_until + 500):
            await asyncio.sleep(0.05)
        return "mine"

    job = await long.enqueue()
    async with working(app, lease=9.0):  # and room for a beat that is six seconds late
        assert await job.result(timeout=60) == "mine"
    ended_job = await job.get()
    assert (ended_job.claim_version, ended_job.lease_losses) == (1, 0)


async def test_readiness_means_that_it_can_claim(small: Callsheet, monkeypatch: pytest.MonkeyPatch) -> None:
    @small.task
    async def work() -> None: ...

    worker = small.worker(poll=0.1)
    assert not worker.ready
    engine = await small.engine()
    claim, hang = engine.store.claim, asyncio.Event()

    async def hanging(*args: object, **kwargs: object) -> object:
        if hang.is_set():
            await asyncio.Event().wait()
        return await claim(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(engine.store, "claim", hanging)
    task = asyncio.create_task(worker.run())
    await until(lambda: worker.ready)
    hang.set()
    await until(lambda: not worker.ready)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    "wrong", [{"concurrency": 0}, {"prefetch": -1}, {"lease": 0.1}, {"lease": "soon"}, {"queues": "a"}], ids=repr
)
def test_options_that_make_no_sense_are_told(wrong: dict[str, object]) -> None:
    app = Callsheet("sqlite::memory:")

    @app.task
    async def work() -> None: ...

    with pytest.raises(InvalidInput):
        app.worker(**wrong)  # type: ignore[arg-type]


def test_an_app_without_tasks_has_nothing_to_serve() -> None:
    with pytest.raises(InvalidInput, match="no tasks"):
        Callsheet("sqlite::memory:").worker()
