"""Work that must stop: cancelled, timed out, lost, or the worker goes down. Jobs are neither lost nor left running."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, cast

import psutil
import pytest

from callsheet import Callsheet, Context, JobCanceled
from callsheet.engine import Engine
from callsheet.engine.silent_workers import BEGUN_JOBS, BegunJobs, is_ahead
from callsheet.kernel import commands
from callsheet.kernel.errors import StaleClaim
from callsheet.kernel.job import Job, Status
from callsheet.kernel.settlement import Settlement
from callsheet.store.protocol import ClaimRequest, JobQuery, Settled
from callsheet.worker import shift
from callsheet.worker.ahead import Ahead
from callsheet.worker.heartbeat import Heartbeat
from callsheet.worker.options import Options, default_worker_id
from callsheet.worker.run import Run, SettlementSink
from callsheet.worker.slots import Slots
from tests.running_worker import until, working
from tests.store_driver import new_job

from .conftest import events_of


async def test_a_running_task_is_cancelled_with_its_reason(app: Callsheet) -> None:
    begun, cleaned = asyncio.Event(), asyncio.Event()

    @app.task
    async def endless() -> None:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            cleaned.set()

    job = await endless.enqueue()
    async with working(app):
        await begun.wait()
        await job.cancel("not wanted any more")
        with pytest.raises(JobCanceled, match="not wanted any more"):
            await job.result(timeout=60)
    assert cleaned.is_set()


async def test_a_queued_job_is_cancelled_at_once(app: Callsheet) -> None:
    @app.task
    async def never() -> None: ...

    job = await never.options(delay="1h").enqueue()
    await job.cancel()
    with pytest.raises(JobCanceled):
        await job.result(timeout=60)


async def test_a_thread_sees_that_it_is_cancelled(small: Callsheet) -> None:
    has_begun = threading.Event()

    @small.task
    def polite(ctx: Context) -> None:
        has_begun.set()
        while True:
            ctx.raise_if_cancelled()
            time.sleep(0.005)

    job = await polite.enqueue()
    async with working(small):
        await until(has_begun.is_set)
        await job.cancel("enough")
        with pytest.raises(JobCanceled, match="enough"):
            await job.result(timeout=60)


@pytest.mark.parametrize("plain", [False, True], ids=["async", "thread"])
async def test_a_task_that_ignores_its_cancellation_is_settled_without_it(small: Callsheet, plain: bool) -> None:  # noqa: FBT001
    begun, let_go = threading.Event(), threading.Event()

    @small.task
    async def stubborn() -> str:
        begun.set()
        while not let_go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)
        return "too late"

    @small.task
    def stubborn_thread() -> str:
        begun.set()
        let_go.wait(30)
        return "too late"

    @small.task
    async def other() -> str:
        return "served"

    job = await (stubborn_thread if plain else stubborn).enqueue()
    async with working(small, grace=0.2, concurrency=2):
        await until(begun.is_set)
        await job.cancel("now")
        with pytest.raises(JobCanceled):
            await job.result(timeout=60)
        assert await (await other.enqueue()).result(timeout=60) == "served"
        let_go.set()
    assert (await job.get()).status is Status.CANCELED
    assert (await events_of(small, job.id))[-1] == "canceled"


async def test_programs_die_with_the_attempt_that_started_them(small: Callsheet, tmp_path: Path) -> None:
    survive = f"while [ ! -e {tmp_path}/over ]; do sleep 0.1; done; echo $$ >> {tmp_path}/survivors"

    @small.task(timeout=2.0, max_attempts=1)
    async def encode(ctx: Context) -> None:
        script = f"({survive}) & echo $! > {tmp_path}/grandchild; wait"
        child = await ctx.children.start("/bin/sh", "-c", script)
        (tmp_path / "child").write_text(str(child.pid))
        await child.wait()

    @small.task(max_attempts=1)
    def leave_behind(ctx: Context) -> None:
        child = ctx.children.popen("/bin/sh", "-c", survive)
        (tmp_path / "left").write_text(str(child.pid))

    slow, quick = await encode.enqueue(), await leave_behind.enqueue()
    await small.worker().run(burst=True)
    (tmp_path / "over").touch()
    assert (await slow.get()).status is Status.DEAD_LETTER
    assert (await quick.get()).status is Status.SUCCEEDED
    files = [tmp_path / name for name in ("child", "grandchild", "left")]
    pids = [int(text) for file in files if file.exists() and (text := file.read_text().strip())]
    assert pids
    await until(lambda: not any(_alive(pid) for pid in pids))
    assert not (tmp_path / "survivors").exists()


async def test_a_lost_claim_stops_the_work_and_its_outcome_changes_nothing(app: Callsheet) -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()
    refusals: list[bool] = []

    @app.task(max_attempts=5)
    async def long(ctx: Context) -> str:
        if ctx.attempt > 1:
            return "by the second"
        begun.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            try:
                ctx.progress(99)
            except StaleClaim:
                refusals.append(True)
            stopped.set()
            raise
        return "by the first"

    job = await long.enqueue()
    engine = await app.engine()
    async with working(app, lease=1.5, housekeeping=False):
        await begun.wait()
        held = await engine.get(job.id)
        at = await engine.store.now() + 60_000
        await engine.store.settle([commands.lose_lease(held, rand=0.0)], now=at)  # another process took it
        await asyncio.wait_for(stopped.wait(), 60)
        assert refusals == [True]
        assert await job.result(timeout=60) == "by the second"
    assert (await job.get()).claim_version == 2


async def test_a_blocked_event_loop_does_not_lose_the_lease(
    app: Callsheet, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It blocks until its lease was extended."""
    engine = await app.engine()
    beats: list[float] = []
    beat = Heartbeat._beat

    async def noted(*args: Any) -> None:
        await beat(*args)
        beats.append(time.monotonic())

    monkeypatch.setattr(Heartbeat, "_beat", noted)

    @app.task
    async def rude(ctx: Context) -> str:
        start, before = time.monotonic(), len(beats)
        while time.monotonic() < start + 60 and (len(beats) == before or time.monotonic() < start + 3.5):
            time.sleep(0.05)  # noqa: ASYNC251 - that is the point
        renewed = (await engine.get(ctx.job_id)).lease_expires_at or 0
        return "still mine" if renewed > (ctx.job.lease_expires_at or 0) else "run out"

    job = await rude.enqueue()
    async with working(app, lease=9.0):
        assert await job.result(timeout=60) == "still mine"
    ended_job = await job.get()
    assert (ended_job.claim_version, ended_job.lease_losses) == (1, 0)
    assert "the event loop was blocked for" in caplog.text


async def test_draining_hands_back_what_has_not_begun_and_costs_no_attempt(app: Callsheet) -> None:
    gate, begun = asyncio.Event(), list[int]()

    @app.task
    async def wait() -> str:
        begun.append(1)
        await gate.wait()
        return "finished"

    @app.task
    async def quick() -> None: ...

    await quick.enqueue_many([{}] * 400)  # makes the worker claim ahead
    blocked = await wait.enqueue_many([{}] * 40)
    worker = app.worker(concurrency=4, lease=60.0)
    task = asyncio.create_task(worker.run())
    await until(lambda: len(begun) == 4)
    worker.stop()
    await until(lambda: worker.prefetched == 0)
    states = [await job.get() for job in blocked]
    await until(lambda: worker.unsettled == 0)
    states = [await job.get() for job in blocked]
    assert sum(s.status is Status.RUNNING for s in states) == 4
    assert all(s.attempt_count == 0 for s in states if s.status is Status.QUEUED)
    gate.set()
    await task
    states = [await job.get() for job in blocked]
    assert sum(s.status is Status.SUCCEEDED for s in states) == 4
    assert all(s.lease_losses == 0 for s in states)


async def test_a_hard_stop_hands_back_what_runs(app: Callsheet) -> None:
    has_begun = asyncio.Event()

    @app.task
    async def endless(ctx: Context) -> str:
        if ctx.job.claim_version > 1:
            return f"attempt {ctx.attempt}"
        has_begun.set()
        await asyncio.sleep(3600)
        return "?"

    job = await endless.enqueue()
    worker = app.worker()
    task = asyncio.create_task(worker.run())
    await has_begun.wait()
    worker.stop()
    worker.stop(hard=True)
    await asyncio.wait_for(task, 60)
    state = await job.get()
    assert (state.status, state.attempt_count) == (Status.QUEUED, 0)
    await app.worker().run(burst=True)
    assert await job.result() == "attempt 1"


async def test_a_cancelled_worker_hands_back_what_runs(small: Callsheet) -> None:
    has_begun = asyncio.Event()

    @small.task
    async def endless() -> None:
        has_begun.set()
        await asyncio.sleep(3600)

    job = await endless.enqueue()
    task = asyncio.create_task(small.worker().run())
    await has_begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await job.get()).status is Status.QUEUED


async def test_long_jobs_are_not_hoarded(small: Callsheet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shift, "STALE_AFTER_S", 3_600.0)  # they come back as soon as it is seen that they are long
    gate = asyncio.Event()
    start_events: list[None] = []

    @small.task
    async def long() -> None:
        start_events.append(None)
        await gate.wait()

    @small.task
    async def quick() -> None: ...

    await quick.enqueue_many([{}] * 300)
    jobs = await long.enqueue_many([{}] * 30)
    async with working(small, concurrency=3) as worker:
        await until(lambda: len(start_events) == 3)
        engine = await small.engine()
        free = 0
        while free < 27:  # those it held back in advance come back within a moment, for other workers
            free += len(await engine.claim(ClaimRequest("another", ("default",), 100, 600_000)))
            await asyncio.sleep(0.02)
        assert (free, len(start_events)) == (27, 3)
        gate.set()
        await until(lambda: worker.slots_busy == 0)
    assert {(await job.get()).attempt_count for job in jobs} == {1}


async def test_a_long_job_that_was_claimed_ahead_is_listed_as_begun(app: Callsheet) -> None:
    gate = asyncio.Event()
    start_events: list[str] = []

    @app.task
    async def long(ctx: Context) -> None:
        start_events.append(ctx.job_id)
        await gate.wait()

    @app.task
    async def quick() -> None: ...

    await quick.enqueue_many([{}] * 300)
    await long.enqueue_many([{}] * 30)
    engine = await app.engine()

    async def listed() -> set[str]:
        documents = await engine.store.documents(BEGUN_JOBS)
        return {job_id for document in documents for job_id in json.loads(document.body)["jobs"]}

    async with working(app, concurrency=2):
        while len(start_events) < 2 or not {i for i in start_events if is_ahead(await engine.get(i))} <= await listed():
            await asyncio.sleep(0.02)
        waiting = [job async for job in _all(engine) if job.job_id not in start_events and job.kind == "long"]
        assert not await listed() & {job.job_id for job in waiting}
        gate.set()
    assert await engine.store.documents(BEGUN_JOBS) == []


async def test_a_job_that_was_lost_early_begins_only_when_it_is_listed(app: Callsheet) -> None:
    """The job may have killed its worker: the attempt counts from now on."""
    engine = await app.engine()
    seen: list[bool] = []

    @app.task
    async def suspect(ctx: Context) -> None:
        (job,) = await engine.store.get([ctx.job_id])
        assert job is not None
        owner = job.worker_id or ""
        lists = await engine.store.documents(BEGUN_JOBS, owner)
        seen.append(not is_ahead(job) or any(ctx.job_id in document.body for document in lists))

    @app.task
    async def quick() -> None: ...

    await quick.enqueue_many([{}] * 300)
    jobs = await suspect.enqueue_many([{}] * 20)
    for job in await engine.claim(ClaimRequest("dead~+1", limit=500, lease_ms=1), now=1):
        await engine.settle([commands.lose_lease(job, rand=0, has_begun=False)], now=10)
    async with working(app, concurrency=2):
        for handle in jobs:
            await handle.result(timeout=60)
    assert seen == [True] * 20


async def test_a_job_that_was_lost_once_begins_though_no_slot_is_ever_free(small: Callsheet) -> None:
    engine = await small.engine()
    jobs = [new_job() for _ in range(5)]
    await engine.enqueue(jobs)
    begun_job = BegunJobs(engine.store, "w")
    slots = Slots(engine, Options(), deque(), lambda: None, lambda _: None)
    ahead = Ahead(begun_job, slots, lambda _: True)
    for job in await engine.claim(ClaimRequest(begun_job.owner, limit=5, lease_ms=600_000)):
        ahead.suspects.append((0.0, Run(job, None, cast("SettlementSink", None), float("inf"))))

    async def listed() -> set[str]:
        documents = await engine.store.documents(BEGUN_JOBS)
        return {job_id for document in documents for job_id in json.loads(document.body)["jobs"]}

    began = list[str]()
    for free, count in ((0, 1), (0, 2), (2, 4), (0, 5), (0, 5)):
        began += [run.job_id for _, run in await ahead.look(free)]
        assert began == [new.job_id for new in jobs[:count]], "one at least, and no more than there are slots"
        assert await listed() == set(began), "none begins before the store lists it"
    assert not ahead.suspects


async def _all(engine: Engine) -> AsyncIterator[Job]:
    cursor = None
    while True:
        page = await engine.find(JobQuery(limit=200, cursor=cursor))
        for job in page.jobs:
            yield job
        if (cursor := page.cursor) is None:
            return


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_the_worker_has_a_name_of_its_own() -> None:
    app = Callsheet("sqlite::memory:")

    @app.task
    async def task() -> None: ...

    assert app.worker().options.worker_id != app.worker().options.worker_id
    assert app.worker().options.worker_id.startswith(default_worker_id())


async def test_a_burst_goes_on_while_an_end_on_its_way_may_release_others(
    small: Callsheet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim requested before the end was written, and answered later, says nothing about freed jobs."""
    engine = await small.engine()
    claim, late = engine.claim, asyncio.Event()
    settle, ends = engine.settle, list[Settlement]()
    query = 0

    async def noted(settlements: Sequence[Settlement]) -> list[Settled]:
        answers = await settle(settlements)
        ends.extend(settlements)
        return answers

    monkeypatch.setattr(engine, "settle", noted)

    async def answered_late(request: ClaimRequest) -> list[Job]:
        nonlocal query
        query += 1
        jobs = await claim(request)
        if query == 2:
            late.set()
            await until(lambda: ends)  # the first, meanwhile
        return jobs

    monkeypatch.setattr(engine, "claim", answered_late)

    @small.task
    async def step() -> str:
        await late.wait()
        return "done"

    first = await step.enqueue()
    second = await step.options(depends_on=[first]).enqueue()
    await small.worker().run(burst=True)
    assert await second.result(timeout=60) == "done"
