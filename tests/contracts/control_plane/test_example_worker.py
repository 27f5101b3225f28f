"""The worker in `examples/`, as a process, against a real server."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from callsheet.contracts.control_plane import routes
from callsheet.kernel.job import Job, Status
from tests import stores
from tests.http.live import ADMIN, Live, serving
from tests.kit import new_job

PROGRAM = Path(__file__).parents[3] / "examples" / "http_worker.py"


@pytest.fixture
async def live() -> AsyncIterator[Live]:
    async with serving(stores.fresh_url("sqlite"), routers=[routes.router]) as live:
        yield live


@pytest.fixture
def worker(live: Live) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "CALLSHEET_URL": live.url, "CALLSHEET_API_KEY": ADMIN}
    process = subprocess.Popen([sys.executable, str(PROGRAM), "default"], env=environment)
    yield process
    process.kill()
    process.wait()


async def add(live: Live, payload: str) -> str:
    new = new_job("echo", contract="control_plane", payload=payload, retry='{"backoff":{"table_ms":[0]}}')
    await live.engine.enqueue([new])
    return new.job_id


async def until(live: Live, job_id: str, fact: Callable[[Job], bool]) -> Job:
    async with asyncio.timeout(30):
        while not fact(job := await live.engine.get(job_id)):
            await asyncio.sleep(0.02)
    return job


async def test_it_does_the_work(live: Live, worker: subprocess.Popen[bytes]) -> None:
    done = await until(live, await add(live, '{"n":7}'), lambda job: job.status.terminal)
    assert (done.status, done.result) == (Status.SUCCEEDED, '{"task":"echo","echo":{"n":7}}')


async def test_its_failures_are_tried_again_and_told(live: Live, worker: subprocess.Popen[bytes]) -> None:
    dead = await until(live, await add(live, '{"fail":"no such file"}'), lambda job: job.status.terminal)
    assert dead.status is Status.DEAD_LETTER
    assert dead.attempt_count == dead.max_attempts
    assert "no such file" in (dead.error or "")


async def test_it_stops_what_is_cancelled(
    live: Live, worker: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "BEAT_S", 0.1)
    job_id = await add(live, '{"sleep_s":60}')
    await until(live, job_id, lambda job: job.status is Status.RUNNING)
    await live.engine.cancel(job_id, "enough")
    assert (await until(live, job_id, lambda job: job.status.terminal)).status is Status.CANCELED


async def test_told_to_go_it_hands_its_job_back(live: Live, worker: subprocess.Popen[bytes]) -> None:
    job_id = await add(live, '{"sleep_s":60}')
    await until(live, job_id, lambda job: job.status is Status.RUNNING)
    worker.send_signal(signal.SIGTERM)
    job = await until(live, job_id, lambda job: job.status is Status.QUEUED)
    assert job.attempt_count == 0
