"""The queue under live jobs, on all three stores: whole lives, many writers, cancellation, cleanup, resumption."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from callsheet import Callsheet, Context
from callsheet.contracts.aura.folders import Folders
from callsheet.contracts.aura.models import job_body
from callsheet.engine.ids import new_id
from callsheet.kernel import commands
from callsheet.kernel.apply import timeline_faults
from callsheet.kernel.errors import IllegalMove
from callsheet.kernel.job import Job, NewJob, Status
from callsheet.kernel.retry import JobError
from callsheet.store.protocol import ClaimRequest, Settled
from tests.time_limits import within


@pytest.fixture
async def app(url: str) -> AsyncIterator[Callsheet]:
    app = Callsheet(url)
    await app.migrate()
    async with app:
        yield app


async def claimed(app: Callsheet, kind: str = "compose") -> Job:
    engine = await app.engine()
    await engine.enqueue([NewJob(new_id(), kind, contract="aura")])
    (job,) = await engine.claim(ClaimRequest("w"))
    return job


async def stored(app: Callsheet, job: Job) -> Job:
    return await (await app.engine()).get(job.job_id)


async def test_progress_rises_through_a_whole_life(app: Callsheet) -> None:
    job, engine = await claimed(app), await app.engine()
    seen = []
    for percent in (0, 15, 10, 35, 34.9, 65, 85, 200, 3):
        await engine.settle([commands.progress(job, percent)])
        seen.append((await stored(app, job)).progress)
    assert seen == [0, 15, 15, 35, 35, 65, 85, 100, 100]
    await engine.settle([commands.succeed(job)])
    assert (await stored(app, job)).progress == 100


async def test_progress_never_falls_under_many_writers(app: Callsheet) -> None:
    job, engine = await claimed(app), await app.engine()
    await asyncio.gather(*(engine.settle([commands.progress(job, n)]) for n in (50, 10, 90, 30, 70, 20, 80, 40, 60)))
    assert (await stored(app, job)).progress == 90
    job_events = [e.progress for e in await engine.store.events({job.job_id: 0}, 100)]
    assert job_events == sorted(job_events)


@pytest.mark.parametrize("end", ["succeed", "fail", "cancel"])
async def test_the_times_of_an_end_are_in_order(app: Callsheet, end: str) -> None:
    job, engine = await claimed(app), await app.engine()
    settlement = {
        "succeed": lambda: commands.succeed(job),
        "fail": lambda: commands.dead_letter(job, JobError("e", "m")),
        "cancel": lambda: commands.cancel(job, "r"),
    }[end]()
    assert await engine.settle([settlement]) == [Settled.APPLIED]
    ended_job = await stored(app, job)
    assert timeline_faults(ended_job) == []
    body = job_body(ended_job, None)
    assert body["createdUtc"] == body["queuedUtc"] <= body["startedUtc"] <= body["endedUtc"]
    kind = {"succeed": "completedUtc", "cancel": "canceledUtc"}.get(end)
    assert kind is None or body[kind] == body["endedUtc"]


async def test_a_job_that_ended_moves_no_more(app: Callsheet) -> None:
    job, engine = await claimed(app), await app.engine()
    await engine.settle([commands.succeed(job, "1")])
    before = await stored(app, job)
    assert await engine.settle([commands.progress(job, 50), commands.cancel(job, "")]) == [Settled.STALE] * 2
    for command in (engine.cancel, engine.requeue):
        with pytest.raises(IllegalMove):
            await command(job.job_id)
    assert await stored(app, job) == before


async def test_a_queued_job_is_cancelled_without_ever_running(app: Callsheet) -> None:
    engine = await app.engine()
    new = NewJob(new_id(), "compose", contract="aura")
    await engine.enqueue([new])
    job = await engine.cancel(new.job_id)
    assert (job.status, job.started_at) == (Status.CANCELED, None)
    assert await engine.claim(ClaimRequest("w")) == []


async def test_no_step_begins_after_a_cancellation(app: Callsheet) -> None:
    begun: list[str] = []
    has_reached = asyncio.Event()

    @app.task
    async def compose(ctx: Context) -> None:
        for stage in ("Script", "Voice", "Visuals", "Rendering"):
            ctx.stage(stage)
            begun.append(stage)
            if stage == "Voice":
                ctx.progress(40)
                has_reached.set()
                await asyncio.Event().wait()

    engine = await app.engine()
    new = NewJob(new_id(), "compose", contract="aura")
    await engine.enqueue([new])
    worker = app.worker(poll=0.2, grace=2.0)
    working = asyncio.create_task(worker.run())
    await has_reached.wait()
    async with asyncio.timeout(within(5)):
        await engine.cancel(new.job_id, "at 40 %")
        await _until_ended(app, new.job_id)
    worker.stop()
    await working
    job = await engine.get(new.job_id)
    assert (job.status, job.progress, job.cancel_reason) == (Status.CANCELED, 40, "at 40 %")
    assert begun == ["Script", "Voice"]


async def test_folders_are_gone_before_the_final_status(app: Callsheet, tmp_path: Path) -> None:
    folders, reached = Folders(tmp_path / "media"), asyncio.Event()

    @app.task
    async def compose(ctx: Context) -> None:
        try:
            (folders.make("temp", ctx.job_id) / "a").write_text("x")
            reached.set()
            await asyncio.Event().wait()
        finally:
            folders.remove(ctx.job_id)

    engine = await app.engine()
    new = NewJob(new_id(), "compose", contract="aura")
    await engine.enqueue([new])
    worker = app.worker(poll=0.2, grace=2.0)
    working = asyncio.create_task(worker.run())
    await reached.wait()
    await engine.cancel(new.job_id)
    async for event in engine.watch(new.job_id):
        if event.type == "canceled":
            assert not folders.exists(new.job_id)
    worker.stop()
    await working


async def test_completed_steps_run_once_over_attempts(app: Callsheet) -> None:
    ran: list[str] = []

    @app.task(retry=["0s", "0s", "0s"])
    async def compose(ctx: Context) -> list[str]:
        pictures = []
        for name in ("Script", "Voice", "Visuals"):
            pictures.append(await ctx.step(name).run(_make(ran, name)))
            if ctx.attempt == len(pictures):
                raise RuntimeError(f"after {name}")
        return pictures

    job = await compose.enqueue()
    await app.worker().run(burst=True)
    assert await job.result(timeout=60) == ["Script!", "Voice!", "Visuals!"]
    assert ran == ["Script", "Voice", "Visuals"]


async def test_a_lost_worker_is_not_seen_as_a_step_back(app: Callsheet) -> None:
    engine = await app.engine()
    job = await claimed(app)
    await engine.settle([commands.progress(job, 55)])
    now = await engine.store.now()
    (expired_job,) = await engine.store.with_expired_lease(10, now=now + 60_000)
    await engine.settle([commands.lose_lease(expired_job, rand=0)], now=now + 60_000)
    waiting = await stored(app, job)
    assert (job_body(waiting, None)["status"], waiting.progress) == ("Running", 55)


def _make(ran: list[str], name: str) -> Callable[[], str]:
    def make() -> str:
        ran.append(name)
        return f"{name}!"

    return make


async def _until_ended(app: Callsheet, job_id: str) -> None:
    async with asyncio.timeout(60):
        async for _ in (await app.engine()).watch(job_id):
            pass
