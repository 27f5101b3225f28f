"""Jobs of the contract while workers and the server itself are killed: every acknowledged job ends, once.

Here without the gateway's HTTP side: the jobs are enqueued by our engine and by a foreign producer.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import redis

from callsheet.engine import Engine
from callsheet.kernel.errors import DuplicateJob, StoreUnavailable
from callsheet.kernel.job import NewJob
from tests.servers import RedisServer
from tests.time_limits import DEEP

from . import TERMINAL, ForeignWorker, Language, gateway_job, plain_client, until

JOBS = 500 if DEEP else 200
pytestmark = pytest.mark.timeout(300)
LEASE_S = 2
BLOWS = ((0.1, "worker"), (0.2, "worker"), (0.4, "server"), (0.5, "worker"), (0.6, "server"))  # at which share of ends
PATIENT = '{"max_lease_losses":50,"lost_lease_backoff":{"table_ms":[0]}}'


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A private Redis that fsyncs every write before answering."""
    with RedisServer.start(settings={"appendfsync": "always"}) as server:
        yield server


@pytest.fixture
def url(server: RedisServer) -> str:
    return server.fresh_url()


@pytest_asyncio.fixture
async def engine(url: str) -> AsyncIterator[Engine]:
    async with Engine.from_url(url) as engine:
        yield engine


@pytest_asyncio.fixture
async def client(url: str) -> AsyncIterator[Any]:
    async with plain_client(url) as client:
        yield client


class Crew:
    """Our workers and foreign ones, which tests may kill; a new one takes its place."""

    def __init__(self, url: str, log: Path) -> None:
        self._url = url
        self._log = log
        self._members: list[subprocess.Popen[bytes]] = []
        self._hired = 0

    def hire_ours(self) -> None:
        command = [sys.executable, "-m", "tests.faults.crew", f"{self._url}?foreign_idle_ms=3000", str(self._log)]
        environment = {**os.environ, "PYTHONPATH": "src:."}
        self._members.append(subprocess.Popen([*command, str(LEASE_S), "4"], env=environment))

    def hire(self, language: Language) -> None:
        self._hired += 1
        self._members.append(ForeignWorker(language, self._url, f"{language}-{self._hired}").process)

    def kill_first(self) -> None:
        victim = self._members.pop(0)
        victim.kill()
        victim.wait()

    def dismiss(self) -> None:
        while self._members:
            self.kill_first()


@pytest.fixture
def crew(url: str, tmp_path: Path) -> Iterator[Crew]:
    crew = Crew(url, tmp_path / "log")
    yield crew
    crew.dismiss()


async def enqueue_surely(engine: Engine, new: NewJob) -> None:
    """Enqueue; after a lost answer it repeats the request with the same id."""
    while True:
        try:
            await engine.enqueue([new])
        except StoreUnavailable:
            await asyncio.sleep(0.05)
        except DuplicateJob:
            return  # the lost answer was a yes
        else:
            return


async def produce(engine: Engine, acknowledged_ids: list[str]) -> None:
    while len(acknowledged_ids) < JOBS:
        new = gateway_job(f'{{"n":{len(acknowledged_ids)}}}', "count", max_attempts=100, retry=PATIENT)
        await enqueue_surely(engine, new)
        acknowledged_ids.append(new.job_id)


async def ended(client: Any, ids: list[str]) -> int:
    """Return the number of ended jobs; none while the server is away."""
    pipe = client.pipeline(transaction=False)
    for job_id in ids:
        pipe.hget(f"job:{job_id}", "status")
    try:
        return sum(word in TERMINAL for word in await pipe.execute())
    except (redis.ConnectionError, redis.BusyLoadingError):
        return 0


async def test_every_acknowledged_job_ends_once_whoever_is_killed(
    server: RedisServer, engine: Engine, client: Any, crew: Crew
) -> None:
    crew.hire_ours()
    crew.hire("python")
    crew.hire("node")
    crew.hire_ours()
    ids: list[str] = []

    async def have_ended(share: float) -> bool:
        return await ended(client, ids) >= share * JOBS

    async with asyncio.TaskGroup() as group:
        group.create_task(produce(engine, ids))
        for share, victim in BLOWS:
            await until(partial(have_ended, share))
            if victim == "server":
                server.kill9()
                server.start_again()
            else:
                crew.kill_first()
                crew.hire_ours()
    await until(partial(have_ended, 1.0), within_s=90)
    await every_job_ended_once(client, ids)


async def every_job_ended_once(client: Any, ids: list[str]) -> None:
    for job_id in ids:
        word = await client.hget(f"job:{job_id}", "status")
        types = [event["type"] for _, event in await client.xrange(f"job:{job_id}:events")]
        assert word == "done", types
        assert Counter(kind for kind in types if kind in TERMINAL) == {"done": 1}, types
        assert types[-1] == "done"
        assert 0 < await client.ttl(f"job:{job_id}") <= 600
