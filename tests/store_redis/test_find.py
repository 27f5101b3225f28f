"""Filters on Redis: equal jobs whether one command reads many or, if the server refuses, each is read singly."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
import redis.asyncio

from callsheet.kernel import commands
from callsheet.kernel.job import Status
from callsheet.kernel.retry import JobError
from callsheet.store.protocol import JobQuery
from callsheet.store.redis import RedisStore
from callsheet.store.redis import store as module
from tests import stores
from tests.store_driver import T0, StoreDriver, new_job

ROWS = 620  # more than the script reads at once, and no multiple of it


@pytest.fixture(params=["plain", "a star in the prefix", "no SORT"])
async def driver(request: pytest.FixtureRequest) -> AsyncIterator[StoreDriver]:
    url, user = stores.fresh_url("redis"), f"user-{uuid.uuid4()}"
    admin: Any = redis.asyncio.Redis.from_url(url)
    if request.param == "a star in the prefix":
        url += f"?prefix={quote('a*b:', safe='')}"
    if request.param == "no SORT":
        await admin.acl_setuser(user, enabled=True, nopass=True, keys=["*"], commands=["+@all", "-sort"])
        await admin.execute_command("ACL", "SETUSER", user, "allchannels")
        url = urlsplit(url)._replace(netloc=f"{user}:any@{urlsplit(url).netloc}").geturl()
    store = await RedisStore.from_url(url).open()
    yield StoreDriver(store)
    await store.close()
    if request.param == "no SORT":
        await admin.acl_deluser(user)
    await admin.aclose()


async def ids(driver: StoreDriver, **filters: Any) -> list[str]:
    """Of all pages."""
    results: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = await driver.store.find(JobQuery(cursor=cursor or None, **filters))
        results, cursor = results + [job.job_id for job in page.jobs], page.cursor
    return results


async def test_every_filter_finds_its_jobs_among_many(driver: StoreDriver) -> None:
    last = await driver.add(
        kind="rare", queue="night", requester_id="acme", contract="euterpe", correlation_id="Order-7"
    )
    broken_job = await driver.running(kind="breaks")
    await driver.settle(commands.dead_letter(broken_job, JobError("broke", "no Harbour here")))
    batch = [new_job(f"kind.{n % 3}", payload=f'{{"n": "word-{n}-"}}') for n in range(ROWS)]
    others = [receipts.job_id for receipts in await driver.enqueue(*batch)]
    newest = list(reversed(others))
    everything = [*newest, broken_job.job_id, last]
    assert await ids(driver, limit=100) == everything
    for filters in (
        {"kind": "rare"},
        {"queue": "night"},
        {"requester_id": "acme"},
        {"contract": "euterpe"},
        {"text": "order-7"},
        {"kind": "rare", "text": "rare"},
        {"queue": "night", "statuses": (Status.QUEUED, Status.RUNNING)},
    ):
        assert await ids(driver, **filters) == [last], filters
    for statuses in ((Status.DEAD_LETTER,), (Status.DEAD_LETTER, Status.RUNNING), (Status.FAILED, Status.DEAD_LETTER)):
        assert await ids(driver, statuses=statuses) == [broken_job.job_id], statuses
        assert await ids(driver, statuses=statuses, text="HARBOUR") == [broken_job.job_id]
    assert await ids(driver, statuses=(Status.FAILED, Status.SUCCEEDED)) == []
    assert (
        await ids(driver, requester_id="", kind="kind.1", limit=7)
        == [i for n, i in enumerate(others) if n % 3 == 1][::-1]
    )
    assert await ids(driver, queue="default", contract="callsheet", limit=200) == everything[:-1]
    assert await ids(driver, text="word-77-") == [others[77]]
    assert await ids(driver, text=others[5]) == [others[5]]
    assert await ids(driver, text="nowhere", scan_limit=100) == []


async def test_a_time_range_and_a_small_look_go_through_all_pages(
    driver: StoreDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_AT_JOBS", 300)
    ids_added: list[str] = []
    for n in range(ROWS):
        (one,) = await driver.store.enqueue([new_job(f"kind.{n % 2}")], now=T0 + n)
        ids_added.append(one.job_id)
    assert await ids(driver, created_from=T0 + 10, created_to=T0 + 15) == ids_added[14:9:-1]
    assert await ids(driver, created_from=T0 + 10, created_to=T0 + 15, scan_limit=90) == ids_added[14:9:-1]
    assert await ids(driver, created_to=T0 + 2, kind="kind.1", scan_limit=70) == [ids_added[1]]
    page = await driver.store.find(JobQuery(kind="nowhere", scan_limit=70))
    assert page.jobs == []
    assert page.cursor is not None


async def test_a_job_whose_time_is_over_is_not_found(driver: StoreDriver) -> None:
    gone_id, kept_id = await driver.add(kind="a"), await driver.add(kind="a")
    assert isinstance(driver.store, RedisStore)
    await driver.store._client.redis.delete(driver.store._keys.job(gone_id))
    assert await ids(driver) == [kept_id]
    assert await ids(driver, kind="a") == [kept_id]
    assert await ids(driver, queue="default") == [kept_id]
    assert await ids(driver, statuses=(Status.QUEUED,)) == [kept_id]
    assert await ids(driver, text=gone_id) == []


async def test_a_job_without_the_field_is_queued(driver: StoreDriver) -> None:
    job_id = await driver.add()
    assert isinstance(driver.store, RedisStore)
    await driver.store._client.redis.hdel(driver.store._keys.job(job_id), "status")
    assert await ids(driver, statuses=(Status.QUEUED,)) == [job_id]
    assert await ids(driver, statuses=(Status.RUNNING,)) == []
