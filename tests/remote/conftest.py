from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from callsheet import Callsheet
from callsheet.api import workers
from callsheet.contracts.control_plane import enrolment, routes
from callsheet.contracts.control_plane.claims import TERMS, Terms
from callsheet.kernel.job import Job, Status
from callsheet.worker.remote import RemoteOptions, RemoteWorker
from tests import stores
from tests.http.live import Live, serving

ROUTERS = [routes.router, enrolment.router, workers.router]


@pytest.fixture
async def live() -> AsyncIterator[Live]:
    """A control plane on SQLite; store differences are tested elsewhere."""
    async with serving(stores.fresh_url("sqlite"), routers=ROUTERS, housekeeping=True) as live:
        yield live


@pytest.fixture
def app() -> Callsheet:
    """An app whose own store is never opened."""
    return Callsheet("sqlite:////nowhere/at/all.db")


@pytest.fixture
async def token(live: Live) -> str:
    return await live.text(scopes=["worker"])


Working = Callable[..., contextlib.AbstractAsyncContextManager[RemoteWorker]]


@pytest.fixture
def working(live: Live, app: Callsheet, token: str) -> Working:
    """A remote worker beside the test, stopped hard at its end."""

    @contextlib.asynccontextmanager
    async def begin(url: str = "", **options: Any) -> AsyncIterator[RemoteWorker]:
        remote = RemoteOptions(url or live.url, token, labels=options.pop("labels", ()), wait=options.pop("wait", 5.0))
        worker = app.remote_worker(remote, **{"grace": 2.0, "drain": 5.0, **options})
        task = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop(hard=True)
            async with asyncio.timeout(60):
                await asyncio.gather(task, return_exceptions=True)

    return begin


def shorten(live: Live, lease_s: float = 1.5) -> None:
    """Leases that run out while a test looks on."""
    TERMS.put(live.state, Terms(lease_s, lease_s / 3, lease_s))


def beat_often(live: Live) -> None:
    """Beats that come soon, of leases that no busy machine loses."""
    TERMS.put(live.state, Terms(600.0, 0.5, 600.0))


async def add(live: Live, app: Callsheet, name: str, /, **arguments: Any) -> str:
    """A new job's id."""
    new = app.task_named(name).new_job(**arguments)
    await live.engine.enqueue([new])
    return new.job_id


async def until(live: Live, job_id: str, fact: Callable[[Job], Any], within_s: float = 60.0) -> Job:
    async with asyncio.timeout(within_s):
        while not fact(job := await live.engine.get(job_id)):
            await asyncio.sleep(0.01)
    return job


async def ended(live: Live, job_id: str) -> Job:
    return await until(live, job_id, lambda job: job.status.terminal)


async def running(live: Live, job_id: str) -> Job:
    return await until(live, job_id, lambda job: job.status is Status.RUNNING)


async def events(live: Live, job_id: str) -> list[tuple[str, str, str]]:
    return [(e.type, e.step, e.data) for e in await live.engine.store.events({job_id: 0}, 1000)]
