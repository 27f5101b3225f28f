"""Whole workers that die, freeze or lose their servers: every job comes to exactly one outcome, on each store."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from callsheet import Callsheet
from callsheet.engine import Housekeeping
from callsheet.kernel.job import Outcome, Status
from callsheet.store.protocol import JobQuery
from tests.faults.conftest import freeze, run_out
from tests.faults.crew import count, once, slow
from tests.servers import PostgresServer, RedisServer
from tests.time_limits import within

DEEP = bool(os.environ.get("CALLSHEET_DEEP"))
JOBS, AWAY_S = (5_000, 60.0) if DEEP else (1_000, 1.0)
LONG_S = 600.0  # no worker that lives loses such a lease
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
async def app(url: str) -> AsyncIterator[Callsheet]:
    app = Callsheet(url)
    app.definitions |= {"count": count.definition, "slow": slow.definition, "once": once.definition}
    await app.migrate()
    async with app:
        yield app


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.touch()
    return path


@pytest.fixture
def start(url: str, log: Path) -> Iterator[Start]:
    processes: list[subprocess.Popen[bytes]] = []

    def one(lease_s: float = 2.0, concurrency: int = 10) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.faults.crew", url, str(log), str(lease_s), str(concurrency)]
        processes.append(subprocess.Popen(command, env={**os.environ, "PYTHONPATH": "src:."}))
        return processes[-1]

    yield one
    for process in processes:
        process.kill()
        process.wait()


async def enqueue(app: Callsheet, jobs: int) -> list[str]:
    new_jobs = [count.definition.new_job(f"01900000-0000-7000-8000-{n:012x}", f'{{"n":{n}}}') for n in range(jobs)]
    return [handle.id for handle in await app.enqueue(new_jobs)]


async def ended(app: Callsheet, jobs: int, within_s: float = 100) -> Counter[Status]:
    """Wait until so many jobs have ended; return counts by status."""
    engine = await app.engine()
    async with asyncio.timeout(within_s):
        while True:
            counts = (await engine.store.counts()).get("default", {})
            end_count = sum(n for status, n in counts.items() if status.terminal)
            if end_count >= jobs:  # a dead letter shows at once, not by the time limit
                return Counter({status: n for status, n in counts.items() if n})
            await asyncio.sleep(0.05)


async def test_workers_killed_under_load_lose_nothing(app: Callsheet, start: Start, log: Path) -> None:
    ids = await enqueue(app, JOBS)
    crew = [start(), start()]
    engine = await app.engine()
    for share in (0.15, 0.4, 0.65):
        async with asyncio.timeout(60):
            while (await engine.store.counts())["default"].get(Status.SUCCEEDED, 0) < JOBS * share:
                await asyncio.sleep(0.01)
        victim = crew.pop(random.randrange(len(crew)))
        victim.kill()
        victim.wait()
        crew.append(start())
    assert await ended(app, JOBS) == {Status.SUCCEEDED: JOBS}
    ran = Counter(int(line.split()[0]) for line in log.read_text().splitlines())
    assert set(ran) == set(range(JOBS))
    jobs = [job for job in await engine.store.get(ids) if job is not None]
    assert [job.result for job in jobs] == [str(n) for n in range(JOBS)]
    for job, n in zip(jobs, range(JOBS), strict=True):
        attempts = await engine.store.attempts(job.job_id) if ran[n] > 1 else []
        assert [a.outcome for a in attempts].count(Outcome.SUCCEEDED) == (1 if attempts else 0)
        assert ran[n] <= job.claim_version
    events = await engine.store.events(dict.fromkeys(ids, 0), 1_000)
    assert sum(event.type == "done" for event in events) == JOBS


async def test_a_job_of_a_killed_worker_runs_again_within_its_lease_and_two_seconds(
    app: Callsheet, start: Start, log: Path
) -> None:
    crew = {worker.pid: worker for worker in (start(LONG_S), start(LONG_S))}
    await _until(lambda: all(Path(f"{log}.{pid}").exists() for pid in crew))
    (job,) = await app.enqueue([slow.definition.new_job("01900000-0000-7000-8000-000000000001", '{"seconds":2.0}')])
    await _until(lambda: log.read_text().endswith("\n"))
    victim = crew[int(log.read_text().split()[1])]
    victim.kill()
    victim.wait()
    await run_out(await app.engine(), await job.get())
    await _until(lambda: log.read_text().count("slow") == 2, within(2))
    await job.result(timeout=60)
    assert (await job.get()).lease_losses == 1


@pytest.mark.parametrize("begun", [120, 401], ids=["among short ones", "at the first long one"])
async def test_what_waits_in_a_killed_worker_is_no_attempt(app: Callsheet, start: Start, log: Path, begun: int) -> None:
    """A mix of 400 short jobs and 30 long ones, one attempt each: none that never began becomes a dead letter."""
    short, long = ('{"seconds":0}',) * 400, ('{"seconds":600}',) * 30
    new_jobs = [once.definition.new_job(str(uuid.UUID(int=n)), text) for n, text in enumerate((*short, *long), 1)]
    await app.enqueue(new_jobs)
    victim = start(lease_s=600.0, concurrency=1)
    await _until(lambda: log.read_text().count("\n") >= begun)
    victim.kill()
    victim.wait()
    engine = await app.engine()
    later = await engine.store.now() + 3_600_000
    await Housekeeping(engine).reap(now=later)
    began = {line.split()[1] for line in log.read_text().splitlines()}
    jobs = [job for job in await engine.store.get([new.job_id for new in new_jobs]) if job is not None]
    assert len(jobs) == 430
    for job in jobs:
        if job.job_id not in began:
            assert (job.status, job.attempt_count, job.lease_losses) == (Status.QUEUED, 0, 0)
        assert job.status is not Status.RUNNING


async def test_a_frozen_worker_that_wakes_up_changes_nothing(app: Callsheet, start: Start, log: Path) -> None:
    (job,) = await app.enqueue([slow.definition.new_job("01900000-0000-7000-8000-000000000002", '{"seconds":2.0}')])
    zombie = start(LONG_S)
    await _until(lambda: "slow" in log.read_text())
    await freeze(await app.engine(), zombie.pid)
    healthy = start(LONG_S)
    await run_out(await app.engine(), await job.get())
    assert await job.result(timeout=60) == str(healthy.pid)
    before = await job.get()
    zombie.send_signal(signal.SIGCONT)
    zombie.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(zombie.wait, 60) == 0
    assert await job.get() == before
    engine = await app.engine()
    assert [a.outcome for a in await engine.store.attempts(job.id)] == ["lease_lost", "succeeded"]


async def test_a_rolling_restart_costs_no_attempt(app: Callsheet, start: Start, log: Path) -> None:
    ids = await enqueue(app, 600)
    crew = [start(LONG_S, concurrency=4)]
    engine = await app.engine()
    for share in (100, 250, 400):
        async with asyncio.timeout(60):
            while (await engine.store.counts())["default"].get(Status.SUCCEEDED, 0) < share:
                await asyncio.sleep(0.01)
        crew.append(start(LONG_S, concurrency=4))
        await _until(log.with_name(f"{log.name}.{crew[-1].pid}").exists)  # from here on SIGTERM means to hand back
        old = crew.pop(0)
        old.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(old.wait, 60) == 0
    await ended(app, 600)
    assert {job.attempt_count for job in await engine.store.get(ids) if job is not None} == {1}


@pytest.mark.parametrize("kind", ["postgres", "redis"])
async def test_a_server_that_crashes_under_load_loses_nothing(
    kind: str, start_at: Callable[..., None], log: Path
) -> None:
    server = PostgresServer.start(settings={"shared_buffers": "32MB"}) if kind == "postgres" else None
    redis = RedisServer.start(settings={"appendfsync": "always"}) if kind == "redis" else None
    place = server.create_database() if server is not None else redis.fresh_url() if redis is not None else ""
    try:
        app = Callsheet(place)
        app.definitions["count"] = count.definition
        await app.migrate()
        async with app:
            ids = await enqueue(app, 500)
            start_at(place)
            engine = await app.engine()
            async with asyncio.timeout(60):
                while (await engine.store.counts())["default"].get(Status.SUCCEEDED, 0) < 100:
                    await asyncio.sleep(0.01)
            if server is not None:
                server.kill()
                await asyncio.sleep(AWAY_S)
                server.start_again()
            if redis is not None:
                redis.kill9()
                await asyncio.sleep(AWAY_S)
                redis.start_again()
            await asyncio.to_thread(_wait_for_all, place, 500)
            assert len({line.split()[0] for line in log.read_text().splitlines()}) == 500
            assert len(ids) == 500
    finally:
        for one in (server, redis):
            if one is not None:
                one.stop()


@pytest.fixture
def start_at(log: Path) -> Iterator[Callable[[str], None]]:
    processes: list[subprocess.Popen[bytes]] = []

    def one(place: str) -> None:
        command = [sys.executable, "-m", "tests.faults.crew", place, str(log), "5", "10"]
        processes.append(subprocess.Popen(command, env={**os.environ, "PYTHONPATH": "src:."}))

    yield one
    for process in processes:
        process.kill()
        process.wait()


def _wait_for_all(place: str, jobs: int) -> None:
    """Wait over fresh connections: connections from before the crash are broken."""

    async def look() -> None:
        async with Callsheet(place) as app:
            engine = await app.engine()
            async with asyncio.timeout(90):
                while True:
                    page = await engine.find(JobQuery(statuses=(Status.SUCCEEDED,), limit=jobs))
                    if len(page.jobs) == jobs:
                        return
                    await asyncio.sleep(0.1)

    asyncio.run(look())


async def _until(fact: Callable[[], bool], within_s: float = 60.0) -> None:
    async with asyncio.timeout(within_s):
        while not fact():
            await asyncio.sleep(0.01)
