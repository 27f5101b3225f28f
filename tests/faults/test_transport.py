"""Redis Streams beside a SQL store, under kill -9, FLUSHALL and crashes of Redis: every job comes to one outcome."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis as driver

from callsheet import Callsheet
from callsheet.engine import Housekeeping
from callsheet.kernel.job import Outcome, Status
from callsheet.store.protocol import ClaimRequest
from tests import stores
from tests.faults.crew import count
from tests.running_worker import until
from tests.servers import RedisServer
from tests.transport.conftest import BRISK, Rig, Stream, rigged

DEEP = bool(os.environ.get("CALLSHEET_DEEP"))
JOBS, ROUNDS = (5_000, 12) if DEEP else (400, 2)
ENV = {**os.environ, "PYTHONPATH": "src:."}


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    return stores.fresh_url(request.param)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer.start(settings={"appendonly": "no"}) as server:
        yield server


@pytest.fixture
def stream(server: RedisServer) -> Iterator[Stream]:
    with driver.Redis.from_url(server.url(), decode_responses=True) as client:
        client.flushall()
        yield Stream(client)


@pytest.fixture
async def rig(url: str, server: RedisServer, stream: Stream) -> AsyncIterator[Rig]:
    async with rigged(url, server.url(), BRISK) as rig:
        yield rig


async def dead(url: str, server: RedisServer, point: str) -> str:
    """A process that died at this point; return its job id."""
    command = [sys.executable, "-m", "tests.faults.carrier", url, server.url(), point]
    process = await asyncio.to_thread(subprocess.run, command, env=ENV, capture_output=True, text=True, timeout=60)
    assert process.returncode == -9, process.stderr
    return process.stdout.strip()


async def test_a_job_whose_process_died_before_it_could_publish_is_published(
    rig: Rig, url: str, server: RedisServer, stream: Stream
) -> None:
    job_id = await dead(url, server, "before publish")
    await until(lambda: stream.stays() == [f"{job_id}.0"])


async def test_a_message_stays_pending_until_its_end_is_committed(
    rig: Rig, url: str, server: RedisServer, stream: Stream
) -> None:
    new = await rig.add()
    assert await dead(url, server, "before end") == new.job_id
    assert stream.stays() == [f"{new.job_id}.0"]
    (owner,) = stream.pending().values()
    async with asyncio.timeout(60):
        while not await Housekeeping(rig.engine).reap():
            await asyncio.sleep(0.02)
        while not (jobs := await rig.claim()):
            await rig.engine.store.promote()
            await asyncio.sleep(0.02)
    assert [(job.job_id, job.claim_version) for job in jobs] == [(new.job_id, 2)]
    await until(lambda: stream.stays() == [f"{new.job_id}.1"])
    await until(lambda: owner not in stream.consumers())


async def test_a_message_whose_end_was_committed_and_not_acknowledged_goes(
    rig: Rig, url: str, server: RedisServer, stream: Stream
) -> None:
    new = await rig.add()
    assert await dead(url, server, "before ack") == new.job_id
    assert (await rig.engine.get(new.job_id)).status is Status.SUCCEEDED
    await until(lambda: not stream.entries() and not stream.pending())
    assert await rig.claim() == []


async def test_workers_killed_while_redis_is_flushed_and_crashes_end_every_job_once(
    rig: Rig, url: str, server: RedisServer, stream: Stream, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.touch()
    app = Callsheet(url)
    app.definitions["count"] = count.definition
    new_jobs = [count.definition.new_job(f"01900000-0000-7000-8000-{n:012x}", f'{{"n":{n}}}') for n in range(JOBS)]
    await rig.engine.enqueue(new_jobs)
    crew: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        command = [sys.executable, "-m", "tests.faults.crew", url, str(log), "2", "5"]
        crew.append(subprocess.Popen(command, env={**ENV, "CALLSHEET_REDIS_URL": server.url()}))

    async def succeeded() -> int:
        return (await rig.engine.store.counts())["default"].get(Status.SUCCEEDED, 0)

    try:
        start()
        start()
        for round_ in range(ROUNDS):
            async with asyncio.timeout(60):
                while await succeeded() < JOBS * (round_ + 1) / (ROUNDS + 2):
                    await asyncio.sleep(0.01)
            victim = crew.pop(random.randrange(len(crew)))
            victim.kill()
            victim.wait()
            if round_ % 2:
                await asyncio.to_thread(server.kill9)
                await asyncio.to_thread(server.start_again)
            else:
                stream.redis.flushall()
            start()
        async with asyncio.timeout(100):
            while await succeeded() < JOBS:
                await asyncio.sleep(0.02)
    finally:
        for process in crew:
            process.kill()
            process.wait()
    ran = Counter(int(line.split()[0]) for line in log.read_text().splitlines())
    assert set(ran) == set(range(JOBS))
    for job in await rig.engine.store.get([new.job_id for new in new_jobs]):
        assert job is not None
        n = int(job.result or -1)
        assert ran[n] <= job.claim_version
        outcomes = [attempt.outcome for attempt in await rig.engine.store.attempts(job.job_id)] if ran[n] > 1 else []
        assert outcomes.count(Outcome.SUCCEEDED) == (1 if outcomes else 0)
    await until(lambda: not stream.entries() and not stream.known())
    assert await rig.engine.claim(ClaimRequest("w")) == []
