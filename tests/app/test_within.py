"""Jobs in the caller's own transaction: a job exists exactly when the caller commits."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any

import asyncpg
import psycopg
import pytest

from callsheet import Callsheet
from callsheet.kernel.errors import (
    DependencyNotFound,
    DuplicateJob,
    InvalidInput,
    InvalidPayload,
    JobNotFound,
    StoreError,
)
from callsheet.kernel.job import Status
from callsheet.store.protocol import JobQuery
from tests import stores


async def _app(url: str) -> Callsheet:
    app = Callsheet(url)
    await app.migrate()

    @app.task(queue="mail")
    async def send(order: int) -> int:
        return order

    return app


@pytest.fixture
async def postgres() -> AsyncIterator[Callsheet]:
    app = await _app(stores.fresh_url("postgres"))
    async with app:
        yield app


@pytest.fixture
async def sqlite() -> AsyncIterator[Callsheet]:
    app = await _app(stores.fresh_url("sqlite"))
    async with app:
        yield app


class Rollback(Exception):
    """The caller changes its mind."""


async def test_asyncpg(postgres: Callsheet) -> None:
    send = postgres.tasks["send"]
    mine = await asyncpg.connect(postgres.database_url)
    try:
        await mine.execute("CREATE TABLE orders (id int)")
        with pytest.raises(Rollback):
            async with mine.transaction():
                await mine.execute("INSERT INTO orders VALUES (1)")
                gone_job = await postgres.within(mine).enqueue(send, order=1)
                raise Rollback
        async with mine.transaction():
            await mine.execute("INSERT INTO orders VALUES (2)")
            kept_job = await postgres.within(mine).enqueue(send, order=2, unique_key="order-2", concurrency_key="c")
            same = await postgres.within(mine).enqueue(send, order=2, unique_key="order-2")
            later = await postgres.within(mine).enqueue(send, order=3, depends_on=kept_job)
            with pytest.raises(JobNotFound):
                await kept_job.get()  # not committed yet
    finally:
        await mine.close()
    with pytest.raises(JobNotFound):
        await gone_job.get()
    assert (same.id, same.created) == (kept_job.id, False)
    await postgres.worker().run(burst=True)
    assert [await kept_job.result(), await later.result()] == [2, 3]


async def test_without_a_transaction_there_is_nothing_to_join(postgres: Callsheet) -> None:
    send = postgres.tasks["send"]
    mine = await asyncpg.connect(postgres.database_url)
    try:
        with pytest.raises(InvalidInput, match="begin one"):
            await postgres.within(mine).enqueue(send, order=1)
        async with mine.transaction():
            with pytest.raises(DependencyNotFound):
                await postgres.within(mine).enqueue(send, order=1, depends_on="01900000-0000-7000-8000-00000000ffff")
            kept_job = await postgres.within(mine).enqueue(send, order=2)
    finally:
        await mine.close()
    engine = await postgres.engine()
    assert [job.job_id for job in (await engine.find(JobQuery())).jobs] == [kept_job.id]


async def test_a_worker_hears_of_it_when_the_caller_commits(postgres: Callsheet) -> None:
    worker = postgres.worker(poll=600.0)
    task = asyncio.create_task(worker.run())
    mine = await asyncpg.connect(postgres.database_url)
    try:
        async with asyncio.timeout(60):
            while not worker.ready:
                await asyncio.sleep(0.01)
        async with mine.transaction():
            job = await postgres.within(mine).enqueue(postgres.tasks["send"], order=1)
        assert await job.result(timeout=60) == 1
    finally:
        worker.stop()
        await task
        await mine.close()


async def test_psycopg_plain_and_async(postgres: Callsheet) -> None:
    send = postgres.tasks["send"]

    def plain() -> list[Any]:
        with psycopg.connect(postgres.database_url, row_factory=psycopg.rows.dict_row) as mine:
            kept_job = postgres.within(mine).enqueue(send, order=1, idempotency_key="k", priority=3)
            again = postgres.within(mine).enqueue(send, order=1, idempotency_key="k", priority=3)
            many = postgres.within(mine).enqueue_many([send.new_job(order=n) for n in range(3)])
            mine.commit()
            gone_job = postgres.within(mine).enqueue(send, order=9)
            mine.rollback()
        return [kept_job, again, gone_job, *many]

    kept, again, gone, *many = await asyncio.to_thread(plain)
    assert again.id == kept.id
    with pytest.raises(JobNotFound):
        await gone.get()
    async with await psycopg.AsyncConnection.connect(postgres.database_url) as mine:
        other = await postgres.within(mine).enqueue(send, order=5)
    assert (await other.get()).status is Status.QUEUED
    assert (await kept.get()).priority == 3
    await postgres.worker().run(burst=True)
    assert [await job.result() for job in many] == [0, 1, 2]


async def test_sqlite3(sqlite: Callsheet) -> None:
    send = sqlite.tasks["send"]
    path = sqlite.database_url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path)) as mine:
        mine.execute("CREATE TABLE orders (id int)")
        mine.execute("INSERT INTO orders VALUES (1)")
        kept_job = sqlite.within(mine).enqueue(send, order=1)
        with pytest.raises(JobNotFound):
            await kept_job.get()
        mine.commit()
        mine.execute("INSERT INTO orders VALUES (2)")
        gone_job = sqlite.within(mine).enqueue(send, order=2)
        mine.rollback()
        new = send.new_job(order=3)
        with pytest.raises(DuplicateJob):
            sqlite.within(mine).enqueue_many([new, send.new_job(order=4, job_id=kept_job.id)])
        mine.commit()
        assert mine.execute("SELECT id FROM orders").fetchall() == [(1,)]
    for absent in (gone_job.id, new.job_id):
        with pytest.raises(JobNotFound):
            await sqlite.job(absent).get()
    await sqlite.worker().run(burst=True)
    assert await kept_job.result() == 1


async def test_what_cannot_be_joined_is_told(sqlite: Callsheet) -> None:
    send = sqlite.tasks["send"]
    with pytest.raises(InvalidInput, match="asyncpg, psycopg or sqlite3"):
        sqlite.within(object())
    with closing(sqlite3.connect(":memory:")) as other:
        with pytest.raises(StoreError, match="no Callsheet tables"):
            sqlite.within(other).enqueue(send, order=1)
        with pytest.raises(InvalidPayload):
            sqlite.within(other).enqueue(send, order="one")
