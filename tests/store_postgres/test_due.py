"""A claim that finds nothing asks for due jobs ten times a second at most; one that a burst ends with asks always.

The limit's clock stands still, so one claim promotes once and no later claim does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from callsheet import Callsheet
from callsheet.contracts.control_plane import routes
from callsheet.kernel.job import Status
from callsheet.store.postgres import PostgresStore
from callsheet.store.postgres.claim import Floor
from callsheet.store.protocol import ClaimRequest, Store
from callsheet.worker.remote import RemoteOptions
from tests.http.live import Live, serving
from tests.store_driver import new_job


async def has_asked(store: Store) -> None:
    """Let the store ask for due jobs of the queue, and never again by itself."""
    assert isinstance(store, PostgresStore)
    store._floor = Floor(clock=lambda: 0.0)
    assert await store.claim(ClaimRequest("w")) == []


async def until_due(store: Store, job_id: str) -> None:
    (job,) = await store.get([job_id])
    assert job is not None
    async with asyncio.timeout(60):
        while await store.now() <= job.run_at:
            await asyncio.sleep(0.001)


async def test_a_thorough_claim_asks_for_due_jobs_in_any_case(store: PostgresStore) -> None:
    await has_asked(store)
    new = new_job(delay_ms=1)
    await store.enqueue([new])
    await until_due(store, new.job_id)
    assert await store.claim(ClaimRequest("w")) == []
    assert [job.job_id for job in await store.claim(ClaimRequest("w", thorough=True))] == [new.job_id]


async def test_a_burst_does_not_end_beside_a_job_that_has_just_become_due(store: PostgresStore, url: str) -> None:
    app = Callsheet(url)
    app.task(name="one")(lambda: 1)
    async with app:
        engine = await app.engine()
        await has_asked(engine.store)
        new = app.task_named("one").new_job()._replace(delay_ms=1)
        await engine.enqueue([new])
        await until_due(engine.store, new.job_id)
        await app.worker(housekeeping=False).run(burst=True)
        assert (await engine.get(new.job_id)).status is Status.SUCCEEDED


@pytest.fixture
async def live(store: PostgresStore, url: str) -> AsyncIterator[Live]:
    async with serving(url, routers=[routes.router], housekeeping=False) as live:
        yield live


async def test_nor_does_the_burst_of_a_remote_worker(live: Live) -> None:
    await has_asked(live.engine.store)
    app = Callsheet("sqlite:////nowhere/at/all.db")
    app.task(name="one")(lambda: 1)
    new = app.task_named("one").new_job()._replace(delay_ms=1)
    await live.engine.enqueue([new])
    await until_due(live.engine.store, new.job_id)
    await app.remote_worker(RemoteOptions(live.url, await live.text(scopes=["worker"]))).run(burst=True)
    assert (await live.engine.get(new.job_id)).status is Status.SUCCEEDED
