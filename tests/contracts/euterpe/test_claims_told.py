"""On both databases a claim and its callback commit in one transaction: a reader sees both or neither."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from callsheet.engine import Engine
from callsheet.kernel.errors import StoreError
from callsheet.kernel.job import Job, NewJob, Status
from callsheet.store.postgres import PostgresStore
from callsheet.store.protocol import ClaimRequest
from tests import stores
from tests.running_worker import until
from tests.store_driver import new_job

ASKED = json.dumps({"status_webhook_url": "https://hooks.example.org/transcode"})
REFUSE = {
    "sqlite": (
        "CREATE TRIGGER refuse BEFORE INSERT ON job_outbox_events BEGIN SELECT RAISE(ABORT, 'no'); END",
        "DROP TRIGGER refuse",
    ),
    "postgres": (
        """CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END';
        CREATE TRIGGER refuse BEFORE INSERT ON job_outbox_events FOR EACH ROW EXECUTE FUNCTION refuse()""",
        "DROP TRIGGER refuse ON job_outbox_events",
    ),
}


async def run_sql(url: str, sql: str) -> None:
    if url.startswith("sqlite"):
        with sqlite3.connect(Path("/" + urlsplit(url).path.lstrip("/")), timeout=60) as connection:
            connection.execute(sql)
        return
    session = await asyncpg.connect(url)
    await session.execute(sql)
    await session.close()


@pytest.fixture(params=["sqlite", "postgres"])
async def opened(request: pytest.FixtureRequest) -> AsyncIterator[tuple[str, str, Engine]]:
    """Return a database kind, its URL, and an open engine."""
    url = stores.fresh_url(request.param)
    engine = Engine.from_url(url)
    await engine.store.migrate()
    async with engine:
        yield request.param, url, engine


async def claimed(engine: Engine, *queues: str) -> list[Job]:
    return await engine.store.claim(ClaimRequest("w", queues or ("transcode",), 10))


def transcode(queue: str = "transcode") -> NewJob:
    return new_job("transcode", payload=ASKED, queue=queue, contract="euterpe")


async def test_a_claim_that_cannot_be_told_is_not_made(opened: tuple[str, str, Engine]) -> None:
    kind, url, engine = opened
    new = transcode()
    await engine.enqueue([new])
    refuse, allow = REFUSE[kind]
    await run_sql(url, refuse)
    with pytest.raises((StoreError, sqlite3.IntegrityError)):
        await claimed(engine)
    job = await engine.get(new.job_id)
    assert (job.status, job.claim_version, job.attempt_count) == (Status.QUEUED, 0, 0)
    await run_sql(url, allow)
    assert [job.job_id for job in await claimed(engine)] == [new.job_id]
    assert len(await engine.store.outbox_find(job_id=new.job_id)) == 1


async def test_nobody_sees_a_claim_before_what_tells_of_it() -> None:
    """Callback rows are locked, so the claim blocks on its callback write: its commit comes later."""
    url = stores.fresh_url("postgres")
    engine = Engine.from_url(url)
    await engine.store.migrate()
    async with engine:
        new = transcode()
        await engine.enqueue([new])
        session = await asyncpg.connect(url)
        async with session.transaction():
            await session.execute("LOCK TABLE job_outbox_events IN SHARE MODE")
            claiming = asyncio.create_task(claimed(engine))
            waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'job_outbox_events'::regclass"
            await until(lambda: session.fetchval(waits))
            assert (await engine.get(new.job_id)).status is Status.QUEUED
        await session.close()
        assert [job.job_id for job in await claiming] == [new.job_id]
        assert len(await engine.store.outbox_find(job_id=new.job_id)) == 1


async def test_a_queue_of_ordinary_jobs_is_claimed_by_one_statement_until_one_is_met_that_is_told() -> None:
    url = stores.fresh_url("postgres")
    store = PostgresStore.from_url(url)
    await store.migrate()
    async with Engine(store) as engine:
        plain, other = new_job("a", queue="a"), new_job("b", queue="b")
        await engine.enqueue([plain])
        assert len(await claimed(engine, "a", "b")) == 1
        assert store._floor.told_of == set()
        await engine.enqueue([other, transcode("b"), transcode("b")])
        assert len(await claimed(engine, "a", "b")) == 3
        assert store._floor.told_of == {"b"}
        assert len(await engine.store.outbox_find()) == 2
        await engine.enqueue([new_job("a", queue="a")])
        assert len(await claimed(engine, "a")) == 1


async def test_of_many_claimers_each_claim_is_told_once(opened: tuple[str, str, Engine]) -> None:
    _, url, engine = opened
    news = [transcode() for _ in range(40)]
    await engine.enqueue(news)
    async with Engine.from_url(url) as second:
        one = (engine, second)
        taken_jobs = await asyncio.gather(*(claimed(one[n % 2]) for n in range(8)))
    ids = sorted(job.job_id for jobs in taken_jobs for job in jobs)
    assert ids == sorted(new.job_id for new in news)
    assert sorted(event.job_id for event in await engine.store.outbox_find(limit=100)) == ids
