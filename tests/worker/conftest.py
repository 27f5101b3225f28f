from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from callsheet import Callsheet
from callsheet.kernel.job import Job
from tests import stores


@pytest.fixture
async def app(url: str) -> AsyncIterator[Callsheet]:
    """An app on each store."""
    app = Callsheet(url)
    await app.migrate()
    async with app:
        yield app


@pytest.fixture
async def small() -> AsyncIterator[Callsheet]:
    """An app on SQLite, for tests independent of the store."""
    async with Callsheet(stores.fresh_url("sqlite")) as app:
        yield app


async def events_of(app: Callsheet, job_id: str) -> list[str]:
    engine = await app.engine()
    return [event.type for event in await engine.store.events({job_id: 0}, 1000)]


async def error_of(job: Job) -> str:
    return job.error or ""
