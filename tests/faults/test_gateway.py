"""The gateway, its workers and its Redis server are killed in the middle of many jobs: 150, in a deep run 500.

Nothing acknowledged is lost, and a client that comes back to its stream sees each event once.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.http.live import frames
from tests.server_process import free_port
from tests.servers import RedisServer
from tests.time_limits import DEEP

JOBS = 500 if DEEP else 150
pytestmark = pytest.mark.timeout(300)
KEY = "key-of-the-fault-tests"
HEADERS = {"Authorization": f"Bearer {KEY}"}
TERMINAL = {"done", "error", "canceled"}
LOST = (httpx2.TransportError, httpx2.StreamError)


class House:
    """A gateway process and its worker processes."""

    def __init__(self, url: str) -> None:
        self.port = free_port()
        self._url = url
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        command = ["-m", "tests.faults.gateway_crew", self._url]
        if name == "gateway":
            command = ["-m", "callsheet.cli", "serve", "--port", str(self.port), "--log-level", "error"]
        environment = {
            **os.environ,
            "PYTHONPATH": "src:.",
            "CALLSHEET_API_KEY": KEY,
            "CALLSHEET_DATABASE_URL": self._url,
        }
        self._running[name] = subprocess.Popen([sys.executable, *command], env=environment)

    def kill(self, name: str) -> None:
        victim = self._running.pop(name)
        victim.kill()
        victim.wait()

    def stop(self) -> None:
        for name in list(self._running):
            self.kill(name)


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    """A Redis that fsyncs every write before answering."""
    with RedisServer.start(settings={"appendfsync": "always"}) as server:
        yield server


@pytest.fixture
def house(redis: RedisServer) -> Iterator[House]:
    house = House(redis.fresh_url())
    yield house
    house.stop()


async def surely(client: httpx2.AsyncClient, method: str, path: str, **options: Any) -> httpx2.Response:
    """Retry until the server answers; the same key makes a second POST harmless."""
    while True:
        try:
            answer = await client.request(method, path, **options)
        except LOST:
            answer = None
        if answer is not None and answer.status_code not in (429, 503):
            return answer
        await asyncio.sleep(0.05)


async def follow(client: httpx2.AsyncClient, job_id: str) -> list[tuple[int, str]]:
    """Return all events of a job, over several connections if necessary."""
    seen: list[tuple[int, str]] = []
    last_id = ""
    while not seen or seen[-1][1] not in TERMINAL:
        headers = {"Last-Event-ID": last_id} if last_id else {}
        try:
            async with client.stream("GET", f"/v1/jobs/{job_id}/events", headers=headers) as answer:
                if answer.status_code == 200:
                    async for frame in frames(answer):
                        if frame.event == "hello":
                            continue
                        seen.append((frame.data["seq"], frame.event))
                        last_id = frame.id
        except LOST:
            pass
        await asyncio.sleep(0.05)
    return seen


async def calamity(number: int, redis: RedisServer, house: House) -> None:
    match 10 * number / JOBS:
        case 2 | 8:
            house.kill("gateway")
            house.start("gateway")
        case 4 | 7:
            house.kill("worker 1")
            house.start("worker 1")
        case 6:
            redis.kill9()
            await asyncio.to_thread(redis.start_again)


async def ended(client: httpx2.AsyncClient, job_id: str) -> dict[str, Any]:
    while True:
        job: dict[str, Any] = (await surely(client, "GET", f"/v1/jobs/{job_id}")).json()
        if job["status"] in TERMINAL:
            return job
        await asyncio.sleep(0.05)


async def test_kills_of_everything_lose_no_job_and_no_event(redis: RedisServer, house: House) -> None:
    for name in ("gateway", "worker 1", "worker 2"):
        house.start(name)

    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
    base = f"http://127.0.0.1:{house.port}"
    async with (
        asyncio.timeout(280),
        httpx2.AsyncClient(base_url=base, headers=HEADERS, limits=limits, timeout=60) as client,
    ):
        acknowledged_ids: list[str] = []
        followers: list[asyncio.Task[list[tuple[int, str]]]] = []
        for n in range(JOBS):
            body = {"task": "chat", "payload": {"n": n}}
            answer = await surely(client, "POST", "/v1/jobs", json=body, headers={"Idempotency-Key": f"k{n}"})
            assert answer.status_code == 202, answer.text
            acknowledged_ids.append(answer.json()["job_id"])
            if n % 5 == 0:
                followers.append(asyncio.create_task(follow(client, acknowledged_ids[-1])))
            await calamity(n, redis, house)
        assert len(set(acknowledged_ids)) == JOBS
        for job_id in acknowledged_ids:
            assert (await ended(client, job_id))["status"] == "done"
        for seen in await asyncio.gather(*followers):
            assert [seq for seq, _ in seen] == list(range(1, len(seen) + 1))
            assert [word for _, word in seen if word in TERMINAL] == ["done"]
