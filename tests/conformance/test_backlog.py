from __future__ import annotations

from typing import Any

import pytest

from callsheet.kernel import commands
from callsheet.kernel.job import HoldReason, OnDependencyFailure
from callsheet.kernel.retry import JobError
from callsheet.store.protocol import Backlog
from tests.kit import Kit, new_job


async def backlog(kit: Kit) -> dict[str, Backlog]:
    return await kit.store.backlog(now=kit.now)


@pytest.mark.guarantee("S25")
async def test_an_empty_store_has_no_backlog(kit: Kit) -> None:
    assert await backlog(kit) == {}


@pytest.mark.guarantee("S25")
async def test_jobs_are_ready_until_they_are_claimed_and_running_until_they_end(kit: Kit) -> None:
    await kit.enqueue(*(new_job() for _ in range(5)), *(new_job(queue="media") for _ in range(2)))
    kit.later(70)
    assert await backlog(kit) == {"default": Backlog(5, 0, 0, 70), "media": Backlog(2, 0, 0, 70)}
    first, second, _ = await kit.claim(limit=3)
    assert (await backlog(kit))["default"] == Backlog(2, 0, 3, 70)
    await kit.done(first)
    await kit.settle(commands.fail(second, JobError("fatal"), rand=0))
    assert (await backlog(kit))["default"] == Backlog(2, 0, 1, 70)
    await kit.claim("media")
    assert (await backlog(kit))["media"] == Backlog(0, 0, 2, None)


@pytest.mark.guarantee("S25")
async def test_a_queue_whose_jobs_have_all_ended_is_left_out(kit: Kit) -> None:
    await kit.done(await kit.running())
    canceled = await kit.get(await kit.add(queue="q"))
    await kit.settle(commands.cancel(canceled))
    assert await backlog(kit) == {}


@pytest.mark.guarantee("S25")
async def test_a_delayed_job_is_held_until_it_is_due(kit: Kit) -> None:
    await kit.enqueue(new_job(delay_ms=100), new_job(delay_ms=500))
    assert await backlog(kit) == {"default": Backlog(0, 2, 0, None)}
    kit.later(99)
    assert await backlog(kit) == {"default": Backlog(0, 2, 0, None)}
    kit.later(1)
    assert await backlog(kit) == {"default": Backlog(1, 1, 0, 0)}
    kit.later(30)
    before = await backlog(kit)
    assert before == {"default": Backlog(1, 1, 0, 30)}
    await kit.store.promote(now=kit.now)
    assert await backlog(kit) == before


@pytest.mark.guarantee("S25")
async def test_a_job_that_waits_for_another_is_held(kit: Kit) -> None:
    parent = await kit.add()
    await kit.add(queue="q", depends_on=(parent,))
    await kit.add(queue="q", depends_on=(parent,), on_dependency_failure=OnDependencyFailure.RUN)
    assert (await backlog(kit))["q"] == Backlog(0, 2, 0, None)
    await kit.settle(commands.fail(await kit.claim_one(), JobError("fatal", retryable=False), rand=0))
    assert await backlog(kit) == {"q": Backlog(1, 1, 0, 0)}


@pytest.mark.guarantee("S25")
async def test_a_job_that_waits_for_a_slot_is_held(kit: Kit) -> None:
    slot: dict[str, Any] = {"concurrency_key": "k", "concurrency_limit": 1}
    await kit.enqueue(*(new_job(**slot) for _ in range(3)), new_job(queue="q", **slot))
    assert await backlog(kit) == {"default": Backlog(1, 2, 0, 0), "q": Backlog(0, 1, 0, None)}
    job = await kit.claim_one()
    assert (await backlog(kit))["default"] == Backlog(0, 2, 1, None)
    await kit.done(job)
    assert (await backlog(kit))["default"] == Backlog(1, 1, 0, 0)


@pytest.mark.guarantee("S25")
async def test_the_age_is_that_of_the_longest_waiting_of_any_priority(kit: Kit) -> None:
    await kit.add(priority=-3)
    kit.later(10)
    await kit.add()
    kit.later(10)
    await kit.enqueue(new_job(priority=7), new_job(priority=7))
    kit.later(5)
    assert (await backlog(kit))["default"] == Backlog(4, 0, 0, 25)
    assert len(await kit.claim(limit=3)) == 3
    assert (await backlog(kit))["default"] == Backlog(1, 0, 3, 25)
    await kit.claim()
    await kit.add()
    assert (await backlog(kit))["default"] == Backlog(1, 0, 4, 0)


@pytest.mark.guarantee("S25")
async def test_a_job_that_comes_back_counts_from_its_new_time(kit: Kit) -> None:
    job = await kit.running()
    kit.later(1_000)
    await kit.settle(commands.retry(job, JobError("x"), delay_ms=50))
    assert await backlog(kit) == {"default": Backlog(0, 1, 0, None)}
    kit.later(60)
    assert await backlog(kit) == {"default": Backlog(1, 0, 0, 10)}
    await kit.settle(commands.release(await kit.claim_one()))
    kit.later(5)
    assert await backlog(kit) == {"default": Backlog(1, 0, 0, 5)}


@pytest.mark.guarantee("S25")
async def test_a_run_at_in_the_past_counts_from_the_enqueue(kit: Kit) -> None:
    await kit.add(run_at=kit.now - 60_000)
    kit.later(3)
    assert await backlog(kit) == {"default": Backlog(1, 0, 0, 3)}


@pytest.mark.guarantee("S25")
async def test_a_lost_lease_is_running_until_it_is_reaped(kit: Kit) -> None:
    job = await kit.running()
    kit.later(60_000)
    assert await backlog(kit) == {"default": Backlog(0, 0, 1, None)}
    await kit.settle(commands.lose_lease(job, rand=0))
    found = (await backlog(kit))["default"]
    assert (found.ready + found.held, found.running) == (1, 0)


@pytest.mark.guarantee("S25")
async def test_a_pause_changes_no_number(kit: Kit) -> None:
    await kit.add()
    await kit.store.pause("default", paused=True)
    assert await backlog(kit) == {"default": Backlog(1, 0, 0, 0)}


@pytest.mark.guarantee("S25")
async def test_without_a_given_time_the_age_is_by_the_stores_clock(kit: Kit) -> None:
    await kit.store.enqueue([new_job(), new_job(run_at=await kit.store.now() + 3_600_000)])
    found = (await kit.store.backlog())["default"]
    assert (found.ready, found.held) == (1, 1)
    assert found.oldest_ms is not None
    assert 0 <= found.oldest_ms < 10_000


@pytest.mark.guarantee("S25")
async def test_a_clock_that_steps_back_makes_no_negative_age(kit: Kit) -> None:
    await kit.add()
    kit.later(-500)
    assert await backlog(kit) == {"default": Backlog(1, 0, 0, 0)}


@pytest.mark.guarantee("S25")
async def test_jobs_that_were_taken_for_a_tenant_are_running(kit: Kit) -> None:
    for requester_id in ("b", "a", "b", "a"):
        await kit.add(requester_id=requester_id)
    later = await kit.add(requester_id="a", delay_ms=1_000)
    (first,) = await kit.claim(limit=1, tenants=frozenset({"a"}))
    assert await kit.store.backlog(now=kit.now) == {"default": (3, 1, 1, 0)}
    await kit.claim_one()
    assert await kit.store.backlog(now=kit.now) == {"default": (2, 1, 2, 0)}
    await kit.done(first)
    assert await kit.store.backlog(now=kit.now) == {"default": (2, 1, 1, 0)}
    assert (await kit.get(later)).held is HoldReason.DELAY
