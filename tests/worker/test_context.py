"""A task's operations on its own job."""

from __future__ import annotations

import asyncio
import contextvars
import os
import stat
from pathlib import Path

import pytest

from callsheet import Callsheet, Context, Fatal, RetryPolicy
from callsheet.kernel.errors import InvalidInput
from callsheet.kernel.retry import Backoff
from callsheet.store.protocol import ClaimRequest
from tests.running_worker import until, working

from .conftest import events_of

AT_ONCE = RetryPolicy(backoff=Backoff(table_ms=(0,)))


async def test_progress_stages_and_lines_are_events_in_order(app: Callsheet) -> None:
    @app.task
    async def encode(ctx: Context) -> float:
        await ctx.stage("decoding")
        ctx.progress(10)
        ctx.progress(60.5, "half way")
        ctx.progress(40)
        await ctx.log("a line", codec="h264")
        return ctx.job.progress

    @app.task
    def encode_in_a_thread(ctx: Context) -> float:
        ctx.stage("decoding").wait(60)
        ctx.progress(60.5, "half way").wait(60)
        ctx.log("a line")
        return ctx.job.progress

    jobs = [await encode.enqueue(), await encode_in_a_thread.enqueue()]
    await app.worker().run(burst=True)
    assert [await job.result() for job in jobs] == [60.5, 60.5]
    assert await events_of(app, jobs[0].id) == [
        "queued", "running", "stage", "progress", "progress", "log", "done",
    ]  # fmt: skip
    assert await events_of(app, jobs[1].id) == ["queued", "running", "stage", "progress", "log", "done"]
    progress = [e.progress async for e in jobs[0].events()]
    assert progress == sorted(progress)


async def test_a_task_may_report_as_often_as_it_likes(small: Callsheet) -> None:
    @small.task
    def busy(ctx: Context) -> str:
        for i in range(10_000):
            last = ctx.progress(i / 100)
        last.wait(60)
        return "told"

    job = await busy.enqueue()
    await small.worker().run(burst=True)
    assert await job.result() == "told"
    reports = [e.progress async for e in job.events() if e.type == "progress"]
    assert len(reports) < 5_000
    assert reports[-1] == 99.99


async def test_many_reports_that_nobody_awaits_harm_no_other_job(small: Callsheet) -> None:
    @small.task
    async def chatty(ctx: Context) -> str:
        for i in range(5_000):
            ctx.progress(i / 50)
        await asyncio.sleep(0)
        return "told"

    @small.task
    async def quiet() -> str:
        return "fine"

    jobs = [await chatty.enqueue(), *(await quiet.enqueue_many([{}] * 5))]
    async with working(small) as worker:
        assert [await job.result(timeout=60) for job in jobs] == ["told", *["fine"] * 5]
        await until(lambda: worker.unsettled == 0)


async def test_progress_that_is_no_number_is_refused_in_the_task(small: Callsheet) -> None:
    @small.task
    async def odd(ctx: Context) -> str:
        with pytest.raises(InvalidInput):
            ctx.progress(float("nan"))
        return "went on"

    job = await odd.enqueue()
    await small.worker().run(burst=True)
    assert await job.result() == "went on"


@pytest.mark.parametrize("plain", [False, True], ids=["async", "thread"])
async def test_a_step_is_not_done_twice(app: Callsheet, plain: bool) -> None:  # noqa: FBT001 - a parameter
    log: list[str] = []

    @app.task(retry=AT_ONCE)
    async def speak(ctx: Context) -> list[int]:
        async with ctx.step("voice") as step:
            if not step.done:
                log.append("voice")
                step.result = [1, 2]
        second = await ctx.step("more").run(lambda: log.append("more"))
        if ctx.attempt == 1:
            raise ValueError("after the steps")
        assert second is None
        return [*step.result, ctx.attempt]

    @app.task(retry=AT_ONCE)
    def speak_plain(ctx: Context) -> list[int]:
        with ctx.step("voice") as step:
            if not step.done:
                log.append("voice")
                step.result = [1, 2]
        second = ctx.step("more").run_blocking(lambda: log.append("more"))
        if ctx.attempt == 1:
            raise ValueError("after the steps")
        assert second is None
        return [*step.result, ctx.attempt]

    job = await (speak_plain if plain else speak).enqueue()
    async with working(app):
        assert await job.result(timeout=60) == [1, 2, 2]
    assert log == ["voice", "more"]


async def test_a_step_that_breaks_is_not_kept(small: Callsheet) -> None:
    @small.task(retry=AT_ONCE)
    async def fragile(ctx: Context) -> int:
        async with ctx.step("part") as step:
            assert not step.done
            if ctx.attempt == 1:
                raise ValueError
            step.result = ctx.attempt
        return int(step.result)

    job = await fragile.enqueue()
    async with working(small):
        assert await job.result(timeout=60) == 2


async def test_a_workspace_is_private_and_goes_with_its_attempt(small: Callsheet, tmp_path: Path) -> None:
    seen: list[Path] = []
    canary = tmp_path / "canary"
    canary.write_text("alive")

    @small.task(max_attempts=1)
    async def work(ctx: Context, *, fail: bool) -> None:
        folder = ctx.workspace
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        seen.append(folder)
        (folder / "deep" / "er").mkdir(parents=True)
        (folder / "deep" / "file").write_text("x")
        (folder / "link").symlink_to(tmp_path)
        (folder / "up").symlink_to("..")
        os.link(canary, folder / "hard")
        if fail:
            raise Fatal("half way")

    await work.enqueue(fail=False)
    await work.enqueue(fail=True)
    root = tmp_path / "root"
    await small.worker(workspaces=root).run(burst=True)
    assert len(set(seen)) == 2
    assert not any(folder.exists() for folder in seen)
    assert list(root.iterdir()) == []
    assert canary.read_text() == "alive"


async def test_workspaces_of_killed_workers_are_cleared_away_and_nothing_else(small: Callsheet, tmp_path: Path) -> None:
    @small.task
    async def work() -> None: ...

    done_job, waiting = await work.enqueue(), await work.options(delay="1h").enqueue()
    engine = await small.engine()
    (running,) = await engine.claim(ClaimRequest("another", limit=1))
    root = tmp_path / "root"
    root.mkdir(mode=0o700)
    held, lost = root / f"{running.job_id}.1", root / f"{waiting.id}.3"
    stranger, foreign = root / "notes", root / "01900000-0000-7000-8000-00000000ffff.1"
    for folder in (held, lost, stranger, foreign):
        (folder / "inner").mkdir(parents=True)
    async with working(small, workspaces=root):
        await until(lambda: not lost.exists())
    assert running.job_id == done_job.id
    assert held.exists()
    assert stranger.exists()
    assert foreign.exists()  # a job of some other store


async def test_a_workspace_root_that_others_may_write_is_refused(small: Callsheet, tmp_path: Path) -> None:
    @small.task(max_attempts=1)
    async def work(ctx: Context) -> str:
        return str(ctx.workspace)

    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    for name in ("link", "open"):
        job = await work.enqueue()
        await small.worker(workspaces=tmp_path / name).run(burst=True)
        assert "choose another folder" in ((await job.get()).error or "")


async def test_context_variables_do_not_leak_from_job_to_job(small: Callsheet) -> None:
    who = contextvars.ContextVar("who", default="nobody")

    @small.task
    async def tell(name: str) -> str:
        before = who.get()
        who.set(name)
        await asyncio.sleep(0)
        return before

    jobs = await tell.enqueue_many([{"name": str(i)} for i in range(20)])
    await small.worker(concurrency=1).run(burst=True)
    assert {await job.result() for job in jobs} == {"nobody"}


async def test_a_requester_of_a_fair_queue_is_served_though_another_has_many_jobs(small: Callsheet) -> None:
    order: list[str] = []

    @small.task(queue="media")
    async def work(ctx: Context) -> None:
        order.append(ctx.job.requester_id)
        await asyncio.sleep(0.005)

    engine = await small.engine()
    engine.fair_queues = frozenset({"media"})
    for _ in range(40):
        await work.options(requester_id="big").enqueue()
    await work.options(requester_id="small").enqueue()
    await small.worker(concurrency=1, prefetch=0).run(burst=True)
    assert len(order) == 41
    assert "small" in order[:4]
