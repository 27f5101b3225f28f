"""A remote worker runs tasks as a local one does, with nothing but HTTP to a real server."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from callsheet import Callsheet, Context, Fatal, Retry, Snooze
from callsheet.cli.testkit.proxy import Fate, FaultProxy, problem
from callsheet.contracts.control_plane.claims import TERMS, Terms
from callsheet.contracts.control_plane.waiting import Waiting
from callsheet.kernel import commands, handing_on
from callsheet.kernel.job import NewJob, Status
from callsheet.kernel.retry import Backoff
from callsheet.worker.remote import RemoteOptions, caller
from tests.http.live import Live
from tests.time_limits import within

from .conftest import Working, add, beat_often, ended, events, running, shorten, until


def plain(ctx: Context, n: int) -> list[Any]:
    """Runs in a child process, so it stands at module level."""
    ctx.progress(30, "plain")
    with ctx.step("one") as step:
        if not step.done:
            step.result = n * 2
    ctx.log("in a process", pid=os.getpid())
    (ctx.workspace / "file").write_text("x")
    process = ctx.children.popen(sys.executable, "-c", "print(7)", stdout=subprocess.PIPE)
    return [step.result, process.communicate()[0].decode().strip(), os.getpid()]


async def test_everything_that_a_context_can_do(live: Live, app: Callsheet, working: Working) -> None:
    @app.task
    async def after(n: int) -> int:
        return n + 1

    @app.task(max_attempts=3, retry=[0])
    async def film(ctx: Context, n: int) -> dict[str, Any]:
        ctx.stage("decoding")
        await ctx.progress(40, "so far")
        ctx.log("hello", level="warning", frame=7)
        ctx.emit("token", text="t")
        first = await ctx.step("one").run(lambda: {"made": ctx.attempt})
        if ctx.attempt == 1:
            raise RuntimeError("once")
        child = await ctx.children.start(sys.executable, "-c", "print(5)", stdout=subprocess.PIPE)
        out, _ = await child.communicate()
        (ctx.workspace / "file").write_text("x")
        return {
            "first": first,
            "out": out.decode().strip(),
            "follow": ctx.enqueue(after, n=n),
            "cancelled": ctx.cancelled,
            "where": str(ctx.workspace),
        }

    job_id = await add(live, app, "film", n=3)
    async with working():
        job = await ended(live, job_id)
        assert job.status is Status.SUCCEEDED, job.error
        result = app.task_named("film").definition.read_result(job.result or "")
        assert (result["first"], result["out"], result["cancelled"]) == ({"made": 1}, "5", False)
        assert not Path(result["where"]).exists()
        follow = await ended(live, result["follow"])
    assert (follow.result, follow.correlation_id) == ("4", job_id)
    assert (job.stage, job.attempt_count) == ("decoding", 2)
    job_events = await events(live, job_id)
    assert [kind for kind, _, _ in job_events if kind not in ("queued", "running")] == [
        *("stage", "progress", "log", "token", "checkpoint", "retrying"),
        *("stage", "progress", "log", "token", "done"),
    ]
    assert ("progress", "decoding", '{"message":"so far"}') in job_events
    assert ("log", "decoding", '{"level":"warning","message":"hello","frame":7}') in job_events
    assert "RuntimeError" in next(data for kind, _, data in job_events if kind == "retrying")


@pytest.mark.parametrize("executor", ["thread", "process"])
async def test_plain_functions_do_the_same(live: Live, app: Callsheet, working: Working, executor: Any) -> None:
    app.task(executor=executor)(plain)
    job_id = await add(live, app, "plain", n=4)
    async with working():
        job = await ended(live, job_id)
    doubled, printed, pid = app.task_named("plain").definition.read_result(job.result or "[0,0,0]")
    assert (doubled, printed) == (8, "7"), job.error
    assert (pid == os.getpid()) == (executor == "thread")
    assert [kind for kind, _, _ in await events(live, job_id)][2:] == ["progress", "checkpoint", "log", "done"]


async def test_outcomes_are_those_of_a_local_worker(live: Live, app: Callsheet, working: Working) -> None:
    @app.task(max_attempts=1)
    async def spent() -> None:
        raise ValueError("broken")

    @app.task
    async def fatal() -> None:
        raise Fatal("no use", code="no_use")

    @app.task
    async def later() -> None:
        raise Retry("not now", after=60)

    @app.task
    async def snooze() -> None:
        raise Snooze(60)

    @app.task
    async def large() -> str:
        return "x" * 1_048_570

    names = ["spent", "fatal", "later", "snooze", "large"]
    ids = [await add(live, app, name) for name in names]
    ids.append(await _unknown(live))
    async with working(task_patience=0):
        jobs = [await until(live, i, lambda job: job.status is not Status.RUNNING and job.event_seq > 2) for i in ids]
    outcomes = [(await live.engine.store.attempts(i))[-1].outcome for i in ids]
    assert outcomes == ["dead_lettered", "failed", "retried", "released", "failed", "dead_lettered"]
    assert [job.status.value for job in jobs] == ["dead_letter", "failed", "queued", "queued", "failed", "dead_letter"]
    assert [job.attempt_count for job in jobs] == [1, 1, 1, 0, 1, 1]
    assert "no_use" in (jobs[1].error or "")
    assert "traceback" in (jobs[0].error or "")
    assert all(50_000 < job.run_at - job.updated_at <= 60_000 for job in jobs[2:4])
    assert "too_large" in (jobs[4].error or "")
    assert "unknown_task" in (jobs[5].error or "")


async def _unknown(live: Live) -> str:
    job_id = "01900000-0000-7000-8000-00000000abcd"
    await live.engine.enqueue([NewJob(job_id, "nobody_has_this")])
    return job_id


async def test_a_job_without_a_task_is_handed_on_until_patience_ends(
    live: Live, app: Callsheet, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handing_on, "BACKOFF", Backoff(base_ms=20, cap_ms=20))
    job_id = await _unknown(live)
    app.task(name="something_else")(plain)
    async with working(task_patience=0.05):
        job = await until(live, job_id, lambda job: job.status.terminal or '"waited_ms"' in (job.error or ""))
    assert (job.status, job.attempt_count) == (Status.DEAD_LETTER, 1)
    error = json.loads(job.error or "")
    assert error["code"] == "unknown_task"
    assert "then retry the job" in error["message"]
    outcomes = [attempt.outcome for attempt in await live.engine.store.attempts(job_id)]
    assert outcomes[:-1] == ["released"] * (len(outcomes) - 1)
    assert len(outcomes) >= 4, "it was offered again, at no cost"
    assert [kind for kind, _, _ in await events(live, job_id)].count("waiting") == len(outcomes) - 1


async def test_a_cancel_stops_work_within_a_second(
    live: Live, app: Callsheet, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A10: a heartbeat waits at the server, and its answer arrives at once.

    Limits and the next heartbeat are hours away.
    """
    TERMS.put(live.state, Terms(7200.0, 3600.0, 7200.0))
    monkeypatch.setattr(caller, "SLACK_S", 3600.0)
    news, waits = Waiting.news, asyncio.Event()

    async def told_by_news_alone(self: Waiting, job_ids: frozenset[str], wait_s: float, *of: Any) -> bool:
        waits.set()
        return await news(self, job_ids, wait_s + 3600.0, *of)

    monkeypatch.setattr(Waiting, "news", told_by_news_alone)

    @app.task
    async def long(ctx: Context) -> None:
        await asyncio.Event().wait()

    async with working():
        for is_awaited in (False, True):
            waits.clear()
            job_id = await add(live, app, "long")
            await running(live, job_id)
            if is_awaited:
                await waits.wait()
            async with asyncio.timeout(within(1.0)):
                await live.engine.cancel(job_id, "enough")
                job = await ended(live, job_id)
            assert (job.status, job.cancel_reason) == (Status.CANCELED, "enough")


async def test_a_lost_lease_kills_the_programs_and_says_nothing(live: Live, app: Callsheet, working: Working) -> None:
    """A6: within two seconds of the next beat the process group is gone."""
    beat_often(live)
    pids: list[int] = []

    @app.task(max_attempts=1)
    async def encode(ctx: Context) -> str:
        child = await ctx.children.start("sh", "-c", "sleep 600 & sleep 600")
        pids.append(child.pid)
        await child.wait()
        await asyncio.sleep(1)
        return "must not be seen"

    async with FaultProxy.before(live.url) as proxy, working(proxy.url):
        job_id = await add(live, app, "encode")
        job = await running(live, job_id)
        await until(live, job_id, lambda _: pids)
        group = [psutil.Process(pids[0]), *psutil.Process(pids[0]).children(recursive=True)]
        proxy.passed.clear()
        await live.engine.settle([commands.lose_lease(job, rand=0.0)._replace(expired_only=False)])
        async with asyncio.timeout(60):
            while proxy.count("heartbeats") == 0:
                await asyncio.sleep(0.01)
        gone, alive = await asyncio.to_thread(psutil.wait_procs, group, within(2))
        assert not alive
        assert gone
        await asyncio.sleep(0.3)
        assert proxy.count("moves") == 0
    assert (await live.engine.get(job_id)).status is Status.DEAD_LETTER


async def test_a_server_out_of_reach_ends_the_work_when_its_lease_does(
    live: Live, app: Callsheet, working: Working
) -> None:
    shorten(live)
    stopped: list[str | None] = []

    @app.task(max_attempts=1)
    async def long(ctx: Context) -> None:
        try:
            await asyncio.sleep(600)
        finally:
            stopped.append(ctx.stop_reason)

    async with FaultProxy.before(live.url) as proxy, working(proxy.url):
        job_id = await add(live, app, "long")
        await until(live, job_id, lambda _: proxy.count("heartbeats") or stopped)
        proxy.fate = lambda _: Fate(instead=problem(503, "store_unavailable"))
        proxy.cut_all()
        async with asyncio.timeout(60):
            while not stopped:
                await asyncio.sleep(0.01)
    assert stopped == ["lost"]


async def test_a_deadline_holds_whatever_the_heartbeats_say(live: Live, app: Callsheet, working: Working) -> None:
    """A18: the worker's own clock ends an attempt, and its programs."""
    pids: list[int] = []

    @app.task(timeout=1.0, max_attempts=1)
    async def slow(ctx: Context) -> None:
        child = await ctx.children.start("sleep", "600")
        pids.append(child.pid)
        await child.wait()
        await asyncio.sleep(600)

    async with working():
        job_id = await add(live, app, "slow")
        job = await ended(live, job_id)
    assert '"code":"timeout"' in (job.error or "")
    (attempt,) = await live.engine.store.attempts(job_id)
    assert 900 < (attempt.ended_at or 0) - attempt.started_at < 1_000 * within(1.6)
    assert not any(psutil.pid_exists(pid) for pid in pids)  # none, where a second is over before it starts


async def test_readiness_is_lost_when_claims_are_not_answered(live: Live, app: Callsheet, working: Working) -> None:
    """A23: red after three waits without a poll that came round."""
    app.task(name="one")(lambda: None)
    async with FaultProxy.before(live.url) as proxy, working(proxy.url, wait=0.3) as worker:
        async with asyncio.timeout(60):
            while not worker.ready:
                await asyncio.sleep(0.01)
        proxy.fate = lambda request: Fate(hole=request.verb == "claim")
        async with asyncio.timeout(within(3)):
            while worker.ready:
                await asyncio.sleep(0.01)


async def test_moves_that_are_refused_harm_no_others(live: Live, app: Callsheet, working: Working) -> None:
    """A step that the server refuses raises in its own task; the batch's other moves are kept."""
    gate = asyncio.Event()
    errors_raised: list[str] = []

    @app.task
    async def good(ctx: Context) -> str:
        await gate.wait()
        await ctx.progress(50)
        return "good"

    @app.task
    async def bad(ctx: Context) -> str:
        await gate.wait()
        try:
            await ctx.write(lambda job: commands.checkpoint(job, "~reserved", "1"))
        except Exception as error:  # noqa: BLE001 - what it is is asked below
            errors_raised.append(type(error).__name__)
        return "went on"

    ids = [await add(live, app, "good"), await add(live, app, "bad")]
    async with working():
        for job_id in ids:
            await running(live, job_id)
        gate.set()
        results = [(await ended(live, job_id)).result for job_id in ids]
    assert results == ['"good"', '"went on"']
    assert errors_raised == ["MoveRefused"]
    assert [kind for kind, _, _ in await events(live, ids[0])].count("progress") == 1  # it was not sent again


async def test_labels_let_a_worker_have_what_needs_them(live: Live, app: Callsheet, working: Working) -> None:
    @app.task(queue="render")
    async def render() -> str:
        return "done"

    new = app.task_named("render").new_job()._replace(queue="render+gpu")
    await live.engine.enqueue([new])
    async with working(wait=0.3):
        await asyncio.sleep(0.5)
        assert (await live.engine.get(new.job_id)).status is Status.QUEUED
    async with working(labels=("gpu",)):
        assert (await ended(live, new.job_id)).status is Status.SUCCEEDED


async def test_the_apps_own_store_is_never_opened(live: Live, app: Callsheet, token: str) -> None:
    app.task(name="one")(lambda: None)
    job_id = await add(live, app, "one")
    await app.remote_worker(RemoteOptions(live.url, token)).run(burst=True)
    assert (await live.engine.get(job_id)).status is Status.SUCCEEDED
    assert not app._engines.resources
