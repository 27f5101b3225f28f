from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from callsheet import Callsheet, Worker
from callsheet.kernel.job import Job
from tests import stores


@pytest.fixture
async def app(url: str) -> AsyncIterator[Callsheet]:
    """An app on each of the three stores."""
    app = Callsheet(url)
    await app.migrate()
    async with app:
        yield app


@pytest.fixture
async def small() -> AsyncIterator[Callsheet]:
    """An app on SQLite, for what has nothing to do with the store."""
    async with Callsheet(stores.fresh_url("sqlite")) as app:
        yield app


@contextlib.asynccontextmanager
async def working(app: Callsheet, **options: Any) -> AsyncIterator[Worker]:
    """A worker beside the test, stopped hard at its end."""
    worker = app.worker(**{"poll": 0.2, "grace": 2.0, "drain": 5.0, **options})
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop(hard=True)
        await task


async def until(fact: Callable[[], Any], within_s: float = 60.0) -> None:
    """Wait for a fact."""
    async with asyncio.timeout(within_s):
        while not fact():
            await asyncio.sleep(0.005)


async def events_of(app: Callsheet, job_id: str) -> list[str]:
    engine = await app.engine()
    return [event.type for event in await engine.store.events({job_id: 0}, 1000)]


async def error_of(job: Job) -> str:
    return job.error or ""
