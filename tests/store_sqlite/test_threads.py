"""The connections' threads: requests during shutdown get answers, and nothing kills the threads."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from callsheet.kernel.errors import StoreUnavailable
from callsheet.kernel.job import Status
from callsheet.store import store_from_url
from callsheet.store.protocol import ClaimRequest
from callsheet.store.sqlite import SqliteStore, connection
from tests.store_driver import new_job


@pytest.fixture
async def store(tmp_path: Path) -> SqliteStore:
    client = await store_from_url(f"sqlite:///{tmp_path}/x.db").open()
    assert isinstance(client, SqliteStore)
    return client


async def test_what_is_asked_while_the_store_closes_is_answered(store: SqliteStore) -> None:
    closing = asyncio.create_task(store.close())
    request = [asyncio.create_task(store.get([new_job().job_id])) for _ in range(50)]
    await closing
    answers = await asyncio.wait_for(asyncio.gather(*request, return_exceptions=True), 60)
    assert all(answer == [None] or isinstance(answer, StoreUnavailable) for answer in answers)
    with pytest.raises(StoreUnavailable):
        await store.counts()


async def test_a_store_can_be_opened_again(store: SqliteStore) -> None:
    new = new_job()
    await store.enqueue([new])
    await asyncio.gather(store.close(), store.close())
    await store.open()
    assert await store.get([new.job_id]) != [None]
    await store.close()


async def test_a_checkpoint_that_fails_does_not_stop_the_writer(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_failed = asyncio.Event()
    loop = asyncio.get_running_loop()
    real = connection._checkpoint

    class NoDisk:
        def execute(self, _sql: str) -> None:
            loop.call_soon_threadsafe(has_failed.set)
            raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(connection, "IDLE_CHECKPOINT_S", 0.01)
    monkeypatch.setattr(connection, "_checkpoint", lambda _: real(NoDisk()))  # type: ignore[arg-type]
    await store.enqueue([new_job()])
    await asyncio.wait_for(has_failed.wait(), 60)
    await asyncio.wait_for(store.enqueue([new_job()]), 60)
    await store.close()


async def test_a_claim_that_nobody_waits_for_any_more_takes_nothing(store: SqliteStore) -> None:
    await store.enqueue([new_job()])
    gate = asyncio.get_running_loop().create_future()
    busy = asyncio.run_coroutine_threadsafe
    blocked = asyncio.create_task(store._writer.run(lambda _: busy(_wait(gate), gate.get_loop()).result()))
    await asyncio.sleep(0.05)
    claim = asyncio.create_task(store.claim(ClaimRequest("w")))
    await asyncio.sleep(0.05)
    claim.cancel()
    await asyncio.gather(claim, return_exceptions=True)
    gate.set_result(None)
    await blocked
    assert (await store.counts())["default"] == {Status.QUEUED: 1}
    await store.close()


async def _wait(gate: asyncio.Future[None]) -> None:
    await gate
