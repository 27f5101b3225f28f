"""How a remote worker ends: stop signals, drains, refusals by the server, and finished bursts."""

from __future__ import annotations

import asyncio

import pytest

from callsheet import Callsheet
from callsheet.cli.testkit.proxy import Asked, Fate, FaultProxy, problem
from callsheet.kernel.job import Outcome, Status
from callsheet.worker.remote import RemoteOptions, WorkerRefused, caller
from tests.http.live import Live

from .conftest import Working, add, ended, until


async def test_stopping_finishes_or_hands_back_and_costs_no_attempt(
    live: Live, app: Callsheet, working: Working
) -> None:
    """A server that never answers blocks no stop (A26)."""
    both_begun = asyncio.Barrier(3)  # what is claimed and has not begun is handed back at once
    stopping = asyncio.Event()

    @app.task
    async def nap(seconds: float) -> str:
        await both_begun.wait()
        await stopping.wait()
        await asyncio.sleep(seconds)
        return "slept"

    async with working(drain=5.0) as worker:
        short, long = await add(live, app, "nap", seconds=0.0), await add(live, app, "nap", seconds=600.0)
        async with asyncio.timeout(60):
            await both_begun.wait()
        worker.stop()
        stopping.set()
        assert (await ended(live, short)).status is Status.SUCCEEDED
        handed = await until(live, long, lambda job: job.status is Status.QUEUED)
    assert handed.attempt_count == 0
    assert [a.outcome for a in await live.engine.store.attempts(long)] == [Outcome.RELEASED]


async def test_an_idle_worker_stops_at_once_and_leaves_no_claim_behind(
    live: Live, app: Callsheet, working: Working
) -> None:
    app.task(name="one")(lambda: None)
    async with FaultProxy.before(live.url) as proxy, working(proxy.url, wait=60.0) as worker:
        async with asyncio.timeout(60):
            while not proxy.waiting:
                await asyncio.sleep(0.01)
        worker.stop()
    assert [one.asked.said.get("first") for one in proxy.passed if one.asked.verb == "claim"] == [None]  # it left


async def test_a_worker_stops_though_its_server_does_not_answer(
    live: Live, app: Callsheet, token: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(caller, "ANSWER_S", 3600.0)  # nothing but the worker's own patience can be what ends it
    app.task(name="one")(lambda: None)
    was_asked = asyncio.Event()

    def silent(request: Asked) -> Fate:
        if request.verb == "claim":
            was_asked.set()
        return Fate(hole=request.verb == "claim")

    async with FaultProxy.before(live.url, silent) as proxy:
        worker = app.remote_worker(RemoteOptions(proxy.url, token, wait=60.0), drain=0.0)
        running = asyncio.create_task(worker.run())
        async with asyncio.timeout(60):
            await was_asked.wait()
            worker.stop()
            await running
    assert "the last claim was not answered" in caplog.text


async def test_a_server_that_asks_for_a_drain_is_obeyed(live: Live, app: Callsheet, token: str) -> None:
    @app.task
    async def nap() -> str:
        while not worker.drained:  # by the answer to a heartbeat
            await asyncio.sleep(0.01)
        return "slept"

    def drain(request: Asked) -> Fate:
        is_beat = request.verb == "heartbeats"
        return Fate(change=lambda answer: {**answer, "drain": True}) if is_beat else Fate()

    async with FaultProxy.before(live.url, drain) as proxy:
        worker = app.remote_worker(RemoteOptions(proxy.url, token, wait=30.0))
        job_id = await add(live, app, "nap")
        async with asyncio.timeout(60):
            await worker.run()
    assert worker.drained
    assert (await live.engine.get(job_id)).status is Status.SUCCEEDED


@pytest.mark.parametrize(
    ("status", "code"), [(401, "unauthorized"), (403, "forbidden"), (308, "moved"), (426, "upgrade_required")]
)
async def test_a_server_that_does_not_want_the_worker_ends_it(
    live: Live, app: Callsheet, token: str, status: int, code: str
) -> None:
    app.task(name="one")(lambda: None)
    refusal = Fate(instead=problem(status, code))
    async with FaultProxy.before(live.url, lambda request: refusal) as proxy:
        worker = app.remote_worker(RemoteOptions(proxy.url, token))
        async with asyncio.timeout(60):
            with pytest.raises(WorkerRefused, match=code):
                await worker.run()
        assert proxy.count("claim") == 1


async def test_a_refused_claim_lets_running_work_end_but_a_refused_token_does_not(
    live: Live, app: Callsheet, token: str
) -> None:
    @app.task(max_attempts=1)
    async def nap() -> str:
        await asyncio.sleep(0.6)
        return "slept"

    for status, ended_as in ((426, Status.SUCCEEDED), (401, Status.RUNNING)):
        job_id = await add(live, app, "nap")

        async def fate(request: Asked, job_id: str = job_id, status: int = status) -> Fate:
            begun_job = (await live.engine.get(job_id)).status is not Status.QUEUED
            refusal = begun_job and (status == 401 or request.verb == "claim")
            return Fate(instead=problem(status, "no")) if refusal else Fate()

        async with FaultProxy.before(live.url, fate) as proxy:
            worker = app.remote_worker(RemoteOptions(proxy.url, token, wait=0.2), grace=1.0)
            async with asyncio.timeout(60):
                with pytest.raises(WorkerRefused):
                    await worker.run()
        assert (await live.engine.get(job_id)).status is ended_as


async def test_a_burst_ends_when_all_is_done(live: Live, app: Callsheet, token: str) -> None:
    @app.task
    async def add_one(n: int) -> int:
        return n + 1

    ids = [await add(live, app, "add_one", n=n) for n in range(30)]
    async with asyncio.timeout(60):
        await app.remote_worker(RemoteOptions(live.url, token), concurrency=4).run(burst=True)
    assert [(await live.engine.get(i)).result for i in ids] == [str(n + 1) for n in range(30)]
