"""A lost claim answer between store and worker costs its jobs nothing."""

from __future__ import annotations

import asyncio
import time

import pytest

from callsheet import Callsheet, Context
from callsheet.engine import Engine
from callsheet.engine.housekeeping import Housekeeping
from callsheet.engine.silent_workers import MOST_WINDOWS, UNHEARD_CLAIMS, UnheardClaims, is_within, windows_of
from callsheet.kernel.errors import StoreUnavailable
from callsheet.kernel.job import Job, Status
from callsheet.store.protocol import ClaimRequest, JobQuery
from tests.running_worker import until, working
from tests.store_driver import new_job
from tests.time_limits import within


async def test_a_claim_whose_answer_was_lost_costs_no_attempt(app: Callsheet, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[int] = []

    @app.task(max_attempts=1)
    async def once(ctx: Context) -> str:
        attempts.append(ctx.attempt)
        return "done"

    job = await once.enqueue()
    store = (await app.engine()).store
    claim, lost = store.claim, list[Job]()

    async def unheard(request: ClaimRequest, *, now: int | None = None) -> list[Job]:
        jobs = await claim(request, now=now)
        if jobs and not lost:
            lost.extend(jobs)
            raise StoreUnavailable("the connection was cut before the answer came")
        return jobs

    monkeypatch.setattr(store, "claim", unheard)
    async with working(app, lease=1.0):
        assert await job.result(timeout=60) == "done"
    ended_job = await job.get()
    assert len(lost) == 1
    assert (attempts, ended_job.attempt_count, ended_job.lease_losses) == ([1], 1, 0)


async def test_a_claim_that_hangs_for_longer_than_its_lease_costs_no_attempt(
    small: Callsheet, monkeypatch: pytest.MonkeyPatch
) -> None:
    @small.task(max_attempts=1)
    async def once() -> str:
        return "done"

    job = await once.enqueue()
    engine = await small.engine()
    claim, has_lost, has_broken = engine.store.claim, list[Job](), asyncio.Event()

    async def hanging(request: ClaimRequest, *, now: int | None = None) -> list[Job]:
        jobs = await claim(request, now=now)
        if jobs and not has_lost:
            has_lost.extend(jobs)
            await has_broken.wait()
            raise StoreUnavailable("the connection was silent, and then it broke")
        return jobs

    async def is_written_down() -> bool:
        return bool(has_lost) and is_within(has_lost[0], await windows_of(engine.store, "w"))

    monkeypatch.setattr(engine.store, "claim", hanging)
    async with working(small, worker_id="w", lease=1.0, housekeeping=False):
        try:
            await until(is_written_down, within(1.0))
            assert await Housekeeping(engine).reap(now=(has_lost[0].lease_expires_at or 0) + 1) == 1
        finally:
            has_broken.set()
        assert await job.result(timeout=60) == "done"
    ended_job = await job.get()
    assert (ended_job.attempt_count, ended_job.lease_losses, ended_job.claim_version) == (1, 0, 2)


async def test_an_odd_error_of_a_claim_ends_no_worker(small: Callsheet, monkeypatch: pytest.MonkeyPatch) -> None:
    @small.task
    async def greets() -> str:
        return "hello"

    store = (await small.engine()).store
    claim, errors = store.claim, [RuntimeError("a driver was closed"), AttributeError("no transport")]

    async def odd(request: ClaimRequest, *, now: int | None = None) -> list[Job]:
        if errors:
            raise errors.pop()
        return await claim(request, now=now)

    monkeypatch.setattr(store, "claim", odd)
    async with working(small):
        assert await (await greets.enqueue()).result(timeout=60) == "hello"
    assert errors == []


@pytest.fixture
async def engine(small: Callsheet) -> Engine:
    return await small.engine()


async def lose(engine: Engine, worker: str, *, after_ms: int = 0, beats: bool = False) -> Job:
    """Claim a job so long after now, in silence or with a heartbeat, and let its lease run out."""
    at = await engine.store.now() + after_ms
    await engine.enqueue([new_job(max_attempts=3)], now=at)
    (job,) = await engine.claim(ClaimRequest(worker, lease_ms=10_000), now=at)
    if beats:
        await engine.heartbeat([job.claim], lease_ms=10_000, now=at + 1)
    assert await Housekeeping(engine).reap(now=at + 10_002) == 1
    lost_job = await engine.get(job.job_id)
    await engine.cancel(job.job_id)
    return lost_job


async def test_only_claims_of_that_worker_and_that_time_went_unheard(engine: Engine) -> None:
    unheard = UnheardClaims(engine.store, "w")
    unheard.add(time.monotonic() - 60.0)
    await unheard.write()
    (window,) = await windows_of(engine.store, "w")
    inside = (window.begin + window.end) // 2 - await engine.store.now()
    counts = [
        (await lose(engine, "w", after_ms=inside)).attempt_count,
        (await lose(engine, "w", after_ms=inside, beats=True)).attempt_count,
        (await lose(engine, "w", after_ms=inside - 3_600_000)).attempt_count,
        (await lose(engine, "w", after_ms=3_600_000)).attempt_count,
        (await lose(engine, "v", after_ms=inside)).attempt_count,
    ]
    assert counts == [0, 1, 1, 1, 1]
    assert {job.status for job in (await engine.find(JobQuery())).jobs} == {Status.CANCELED}


async def test_two_processes_of_one_name_write_beside_each_other(engine: Engine) -> None:
    for _ in range(2):
        unheard = UnheardClaims(engine.store, "w")
        unheard.add(time.monotonic())
        await unheard.write()
        await unheard.write()  # nothing is noted any more
    assert len(await windows_of(engine.store, "w")) == 2


async def test_the_list_does_not_grow_for_ever(engine: Engine) -> None:
    unheard = UnheardClaims(engine.store, "w")
    for _ in range(MOST_WINDOWS + 5):
        unheard.add(time.monotonic())
        await unheard.write()
    assert len(await windows_of(engine.store, "w")) == MOST_WINDOWS
    assert len(await engine.store.documents(UNHEARD_CLAIMS)) == 1
