"""When a worker asks for jobs: before it runs dry, and no more often than useful."""

from __future__ import annotations

import asyncio

import pytest

from callsheet import Callsheet, Context, Fatal
from callsheet.app.options import JobOptions
from callsheet.engine import Engine
from callsheet.engine.silent_workers import AHEAD
from callsheet.kernel import commands
from callsheet.kernel.job import Job
from callsheet.store.protocol import ClaimRequest
from callsheet.worker import shift
from tests.running_worker import until

ALONE: JobOptions = {"concurrency_key": "k", "concurrency_limit": 1}


async def test_a_job_begins_before_more_are_asked_for(small: Callsheet, monkeypatch: pytest.MonkeyPatch) -> None:
    happened = _noted(monkeypatch)
    has_begun = asyncio.Event()

    @small.task
    async def work() -> None:
        happened.append("begun")
        has_begun.set()

    async with asyncio.timeout(60):
        worker = small.worker(poll=3600.0)
        running = asyncio.create_task(worker.run())
        await _idle(happened)
        await work.enqueue()
        await has_begun.wait()
        await until(lambda: happened[-1] != "begun")
        worker.stop()
        await running
    claimed = happened.index("claimed 1")
    assert happened[claimed : claimed + 3] == ["claimed 1", "begun", "asks"]


async def test_an_end_is_no_reason_to_ask_again_where_nothing_was(monkeypatch: pytest.MonkeyPatch) -> None:
    happened = _noted(monkeypatch)
    go = asyncio.Event()
    alone = Callsheet("sqlite::memory:")  # no other process, whose writes may be anything

    @alone.task
    async def work() -> None:
        await go.wait()

    async with asyncio.timeout(60), alone:
        worker = alone.worker(poll=3600.0)
        running = asyncio.create_task(worker.run())
        await _idle(happened)
        job = await work.enqueue()
        await _idle(happened, after="claimed 1")
        request = happened.count("asks")
        go.set()
        await job.result()
        await until(lambda: happened.count("asks") > request)
        await asyncio.sleep(0.1)
        assert happened.count("asks") == request + 1  # once: its end may have released others
        worker.stop()
        await running


@pytest.mark.parametrize("contract", ["euterpe", "callsheet"])
async def test_no_job_is_claimed_ahead_whose_claims_are_told_of(
    small: Callsheet, monkeypatch: pytest.MonkeyPatch, contract: str
) -> None:
    """A claim is reported as `claimed`, which requesters take for a start."""
    requests: list[ClaimRequest] = []
    claim = Engine.claim

    async def noting(self: Engine, request: ClaimRequest, *, now: int | None = None) -> list[Job]:
        requests.append(request)
        return await claim(self, request, now=now)

    @small.task(contract=contract, retry=False)
    async def short() -> None:
        raise Fatal("at once")

    await short.enqueue_many([{}] * 300)
    monkeypatch.setattr(Engine, "claim", noting)
    monkeypatch.setattr(shift, "SHORT_S", 3_600.0)  # on any machine these are short
    await small.worker(concurrency=3).run(burst=True)
    most = max(request.limit for request in requests)
    assert (most <= 3, any(AHEAD in request.worker_id for request in requests)) == (
        (True, False) if contract == "euterpe" else (False, True)
    )


def _noted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    happened: list[str] = []
    claim = Engine.claim

    async def noting(self: Engine, request: ClaimRequest, *, now: int | None = None) -> list[Job]:
        happened.append("asks")
        jobs = await claim(self, request, now=now)
        happened.append(f"claimed {len(jobs)}")
        return jobs

    monkeypatch.setattr(Engine, "claim", noting)
    return happened


async def _idle(happened: list[str], after: str = "asks") -> None:
    """Until a worker has asked in vain and waits."""
    while after not in happened or happened[-1] != "claimed 0":
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)


@pytest.mark.parametrize("by", ["follow-up", "dependent", "slot", "release"])
async def test_a_worker_is_woken_for_what_another_puts_in_line(url: str, by: str) -> None:
    here, there = Callsheet(url), Callsheet(url)
    is_done = asyncio.Event()

    @there.task(queue="there")
    async def follow() -> None:
        is_done.set()

    @here.task(queue="here")
    async def lead(ctx: Context) -> None:
        if by == "follow-up":
            ctx.enqueue(follow)

    async with asyncio.timeout(60), here, there:
        engine = await here.engine()
        if by == "release":
            await here.enqueue([follow.new_job()])
            (held,) = await engine.claim(ClaimRequest("w", ("there",)))
        worker = there.worker(poll=3600.0)
        running = asyncio.create_task(worker.run())
        while not worker.ready:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)  # it has asked in vain, and listens
        if by == "release":
            await engine.settle([commands.release(held)])
        elif by == "dependent":
            await here.enqueue([follow.new_job(depends_on=await lead.enqueue())])  # type: ignore[call-arg]
        elif by == "slot":
            first, second = lead.options(**ALONE).new_job(), follow.options(**ALONE).new_job()
            await here.enqueue([first, second])
        else:
            await lead.enqueue()
        await here.worker().run(burst=True)
        await is_done.wait()
        worker.stop()
        await running
