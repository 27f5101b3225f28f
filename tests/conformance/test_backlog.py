from __future__ import annotations

from typing import Any

import pytest

from callsheet.kernel import commands
from callsheet.kernel.job import HoldReason, OnDependencyFailure
from callsheet.kernel.retry import JobError
from callsheet.store.protocol import Backlog
from tests.store_driver import StoreDriver, new_job


async def backlog(driver: StoreDriver) -> dict[str, Backlog]:
    return await driver.store.backlog(now=driver.now)


@pytest.mark.guarantee("S25")
async def test_an_empty_store_has_no_backlog(driver: StoreDriver) -> None:
    assert await backlog(driver) == {}


@pytest.mark.guarantee("S25")
async def test_jobs_are_ready_until_they_are_claimed_and_running_until_they_end(driver: StoreDriver) -> None:
    await driver.enqueue(*(new_job() for _ in range(5)), *(new_job(queue="media") for _ in range(2)))
    driver.later(70)
    assert await backlog(driver) == {"default": Backlog(5, 0, 0, 70), "media": Backlog(2, 0, 0, 70)}
    first, second, _ = await driver.claim(limit=3)
    assert (await backlog(driver))["default"] == Backlog(2, 0, 3, 70)
    await driver.done(first)
    await driver.settle(commands.fail(second, JobError("fatal"), rand=0))
    assert (await backlog(driver))["default"] == Backlog(2, 0, 1, 70)
    await driver.claim("media")
    assert (await backlog(driver))["media"] == Backlog(0, 0, 2, None)


@pytest.mark.guarantee("S25")
async def test_a_queue_whose_jobs_have_all_ended_is_left_out(driver: StoreDriver) -> None:
    await driver.done(await driver.running())
    canceled_id = await driver.get(await driver.add(queue="q"))
    await driver.settle(commands.cancel(canceled_id))
    assert await backlog(driver) == {}


@pytest.mark.guarantee("S25")
async def test_a_delayed_job_is_held_until_it_is_due(driver: StoreDriver) -> None:
    await driver.enqueue(new_job(delay_ms=100), new_job(delay_ms=500))
    assert await backlog(driver) == {"default": Backlog(0, 2, 0, None)}
    driver.later(99)
    assert await backlog(driver) == {"default": Backlog(0, 2, 0, None)}
    driver.later(1)
    assert await backlog(driver) == {"default": Backlog(1, 1, 0, 0)}
    driver.later(30)
    before = await backlog(driver)
    assert before == {"default": Backlog(1, 1, 0, 30)}
    await driver.store.promote(now=driver.now)
    assert await backlog(driver) == before


@pytest.mark.guarantee("S25")
async def test_a_job_that_waits_for_another_is_held(driver: StoreDriver) -> None:
    parent = await driver.add()
    await driver.add(queue="q", depends_on=(parent,))
    await driver.add(queue="q", depends_on=(parent,), on_dependency_failure=OnDependencyFailure.RUN)
    assert (await backlog(driver))["q"] == Backlog(0, 2, 0, None)
    await driver.settle(commands.fail(await driver.claim_one(), JobError("fatal", retryable=False), rand=0))
    assert await backlog(driver) == {"q": Backlog(1, 1, 0, 0)}


@pytest.mark.guarantee("S25")
async def test_a_job_that_waits_for_a_slot_is_held(driver: StoreDriver) -> None:
    slot: dict[str, Any] = {"concurrency_key": "k", "concurrency_limit": 1}
    await driver.enqueue(*(new_job(**slot) for _ in range(3)), new_job(queue="q", **slot))
    assert await backlog(driver) == {"default": Backlog(1, 2, 0, 0), "q": Backlog(0, 1, 0, None)}
    job = await driver.claim_one()
    assert (await backlog(driver))["default"] == Backlog(0, 2, 1, None)
    await driver.done(job)
    assert (await backlog(driver))["default"] == Backlog(1, 1, 0, 0)


@pytest.mark.guarantee("S25")
async def test_the_age_is_that_of_the_longest_waiting_of_any_priority(driver: StoreDriver) -> None:
    await driver.add(priority=-3)
    driver.later(10)
    await driver.add()
    driver.later(10)
    await driver.enqueue(new_job(priority=7), new_job(priority=7))
    driver.later(5)
    assert (await backlog(driver))["default"] == Backlog(4, 0, 0, 25)
    assert len(await driver.claim(limit=3)) == 3
    assert (await backlog(driver))["default"] == Backlog(1, 0, 3, 25)
    await driver.claim()
    await driver.add()
    assert (await backlog(driver))["default"] == Backlog(1, 0, 4, 0)


@pytest.mark.guarantee("S25")
async def test_a_job_that_comes_back_counts_from_its_new_time(driver: StoreDriver) -> None:
    job = await driver.running()
    driver.later(1_000)
    await driver.settle(commands.retry(job, JobError("x"), delay_ms=50))
    assert await backlog(driver) == {"default": Backlog(0, 1, 0, None)}
    driver.later(60)
    assert await backlog(driver) == {"default": Backlog(1, 0, 0, 10)}
    await driver.settle(commands.release(await driver.claim_one()))
    driver.later(5)
    assert await backlog(driver) == {"default": Backlog(1, 0, 0, 5)}


@pytest.mark.guarantee("S25")
async def test_a_run_at_in_the_past_counts_from_the_enqueue(driver: StoreDriver) -> None:
    await driver.add(run_at=driver.now - 60_000)
    driver.later(3)
    assert await backlog(driver) == {"default": Backlog(1, 0, 0, 3)}


@pytest.mark.guarantee("S25")
async def test_a_lost_lease_is_running_until_it_is_reaped(driver: StoreDriver) -> None:
    job = await driver.running()
    driver.later(60_000)
    assert await backlog(driver) == {"default": Backlog(0, 0, 1, None)}
    await driver.settle(commands.lose_lease(job, rand=0))
    result = (await backlog(driver))["default"]
    assert (result.ready + result.held, result.running) == (1, 0)


@pytest.mark.guarantee("S25")
async def test_a_pause_changes_no_number(driver: StoreDriver) -> None:
    await driver.add()
    await driver.store.pause("default", paused=True)
    assert await backlog(driver) == {"default": Backlog(1, 0, 0, 0)}


@pytest.mark.guarantee("S25")
async def test_without_a_given_time_the_age_is_by_the_stores_clock(driver: StoreDriver) -> None:
    await driver.store.enqueue([new_job(), new_job(run_at=await driver.store.now() + 3_600_000)])
    result = (await driver.store.backlog())["default"]
    assert (result.ready, result.held) == (1, 1)
    assert result.oldest_ms is not None
    assert 0 <= result.oldest_ms < 10_000


@pytest.mark.guarantee("S25")
async def test_a_clock_that_steps_back_makes_no_negative_age(driver: StoreDriver) -> None:
    await driver.add()
    driver.later(-500)
    assert await backlog(driver) == {"default": Backlog(1, 0, 0, 0)}


@pytest.mark.guarantee("S25")
async def test_jobs_that_were_taken_for_a_tenant_are_running(driver: StoreDriver) -> None:
    for requester_id in ("b", "a", "b", "a"):
        await driver.add(requester_id=requester_id)
    later = await driver.add(requester_id="a", delay_ms=1_000)
    (first,) = await driver.claim(limit=1, tenants=frozenset({"a"}))
    assert await driver.store.backlog(now=driver.now) == {"default": (3, 1, 1, 0)}
    await driver.claim_one()
    assert await driver.store.backlog(now=driver.now) == {"default": (2, 1, 2, 0)}
    await driver.done(first)
    assert await driver.store.backlog(now=driver.now) == {"default": (2, 1, 1, 0)}
    assert (await driver.get(later)).held is HoldReason.DELAY
