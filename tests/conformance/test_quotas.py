"""S37 and S38: limits on a requester's waiting jobs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from callsheet.kernel import commands
from callsheet.kernel.errors import QuotaExceeded
from callsheet.kernel.job import Idempotency
from callsheet.kernel.retry import JobError
from tests.store_driver import StoreDriver, new_job

ACME = {"acme": 3}


async def add(driver: StoreDriver, requester_id: str, count: int = 1, **fields: Any) -> list[str]:
    batch = [new_job(requester_id=requester_id, **fields) for _ in range(count)]
    answers = await driver.store.enqueue(batch, quotas={**ACME, "": 2}, now=driver.now)
    return [answer.job_id for answer in answers]


async def used(driver: StoreDriver, requester_id: str = "acme") -> int:
    (count,) = await driver.store.queued_of([requester_id], most=100)
    return count


@pytest.mark.guarantee("S37")
async def test_a_requester_has_no_more_queued_jobs_than_its_quota(driver: StoreDriver) -> None:
    await add(driver, "acme", 2)
    with pytest.raises(QuotaExceeded, match="queued") as excinfo:
        await add(driver, "acme", 2)
    assert (excinfo.value.quota, excinfo.value.requester_id) == ("queued", "acme")
    assert (excinfo.value.limit, excinfo.value.used) == (3, 2)
    assert await used(driver) == 2
    await add(driver, "acme")
    await add(driver, "other", 10)
    with pytest.raises(QuotaExceeded):
        await add(driver, "acme")
    await driver.store.enqueue(
        [new_job(requester_id="acme")], now=driver.now
    )  # who asks for no check is not held to it
    assert (await used(driver), await used(driver, "other")) == (4, 10)


@pytest.mark.guarantee("S37")
async def test_a_refused_requester_leaves_nothing_of_its_batch(driver: StoreDriver) -> None:
    mine, others = [new_job(requester_id="acme") for _ in range(4)], [new_job(requester_id="other")]
    with pytest.raises(QuotaExceeded):
        await driver.store.enqueue([*others, *mine], quotas=ACME, now=driver.now)
    assert await driver.store.get([job.job_id for job in (*mine, *others)]) == [None] * 5
    assert await driver.store.queued_of(["acme", "other"], most=9) == [0, 0]


@pytest.mark.guarantee("S37", "S38")
async def test_a_place_is_free_again_when_a_job_runs_or_ends(driver: StoreDriver) -> None:
    await add(driver, "acme", 3)
    job = await driver.claim_one()
    assert await used(driver) == 2
    (again,) = await add(driver, "acme")
    await driver.settle(commands.request_cancel(await driver.get(again), ""))
    assert await used(driver) == 2
    await driver.settle(commands.retry(job, JobError("503"), delay_ms=60_000))  # comes back, refused by nobody
    assert await used(driver) == 3
    with pytest.raises(QuotaExceeded):
        await add(driver, "acme")
    await driver.claim(limit=10)
    assert await used(driver) == 1  # the one that is delayed


@pytest.mark.guarantee("S38")
async def test_held_jobs_count_and_a_replayed_one_counts_again(driver: StoreDriver) -> None:
    (first,) = await add(driver, "acme")
    await add(driver, "acme", delay_ms=60_000)
    await add(driver, "acme", depends_on=(first,))
    with pytest.raises(QuotaExceeded):
        await add(driver, "acme", concurrency_key="k", concurrency_limit=1)
    job = await driver.claim_one()
    await driver.settle(commands.dead_letter(job, JobError("broke")))
    assert await used(driver) == 2
    await driver.settle(commands.requeue(await driver.get(first)))
    assert await used(driver) == 3
    assert await driver.store.queued_of(["acme", "nobody"], most=2) == [2, 0]


@pytest.mark.guarantee("S37")
async def test_jobs_that_a_key_finds_again_take_no_place(driver: StoreDriver) -> None:
    key = Idempotency("k", "h", "{}", 60)
    first = new_job(requester_id="acme", idempotency=key)
    await driver.store.enqueue([first], quotas=ACME, now=driver.now)
    await add(driver, "acme", unique_key="u")
    await add(driver, "acme")
    again = new_job(requester_id="acme", idempotency=key)
    (answer,) = await driver.store.enqueue([again], quotas=ACME, now=driver.now)
    assert answer.job_id == first.job_id
    assert len(await add(driver, "acme", unique_key="u")) == 1
    assert await used(driver) == 3


@pytest.mark.guarantee("S37")
async def test_of_many_batches_at_once_no_more_fit_than_the_quota(driver: StoreDriver) -> None:
    answers = await asyncio.gather(*(add(driver, "acme") for _ in range(30)), return_exceptions=True)
    assert sum(isinstance(answer, list) for answer in answers) == 3
    assert sum(isinstance(answer, QuotaExceeded) for answer in answers) == 27
    assert await used(driver) == 3


@pytest.mark.guarantee("S37", "S38")
async def test_jobs_of_nobody_have_a_quota_where_one_is_set(driver: StoreDriver) -> None:
    await add(driver, "acme", 3)
    await add(driver, "", delay_ms=60_000)
    await add(driver, "")
    with pytest.raises(QuotaExceeded):
        await add(driver, "")
    assert await driver.store.queued_of(["", "acme"], most=9) == [2, 3]
