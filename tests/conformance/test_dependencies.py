from __future__ import annotations

import asyncio

import pytest

from callsheet.kernel import commands
from callsheet.kernel.job import HoldReason, OnDependencyFailure, Status
from callsheet.kernel.retry import JobError
from tests.store_driver import StoreDriver, new_job

FATAL = JobError("fatal", "no")


@pytest.mark.guarantee("S5")
async def test_a_job_waits_for_all_that_it_depends_on(driver: StoreDriver) -> None:
    a, b = await driver.running(), await driver.running()
    child = await driver.add(depends_on=(a.job_id, b.job_id, a.job_id))
    waiting = await driver.get(child)
    assert (waiting.held, waiting.blocked_by) == (HoldReason.DEPENDENCY, 2)
    await driver.done(a)
    assert await driver.claim() == []
    assert (await driver.get(child)).blocked_by == 1
    await driver.done(b)
    (job,) = await driver.claim()
    assert (job.job_id, job.blocked_by, job.held) == (child, 0, None)


@pytest.mark.guarantee("S5")
async def test_a_dependency_that_has_succeeded_does_not_block(driver: StoreDriver) -> None:
    parent = await driver.running()
    await driver.done(parent)
    child = await driver.add(depends_on=(parent.job_id,))
    assert [j.job_id for j in await driver.claim()] == [child]


@pytest.mark.guarantee("S5")
async def test_a_retrying_dependency_still_blocks(driver: StoreDriver) -> None:
    parent = await driver.running()
    child = await driver.add(depends_on=(parent.job_id,))
    await driver.settle(commands.retry(parent, JobError("x"), delay_ms=0))
    (again,) = await driver.claim()
    assert again.job_id == parent.job_id
    await driver.done(again)
    assert [j.job_id for j in await driver.claim()] == [child]


@pytest.mark.guarantee("S5")
async def test_an_unblocked_job_still_waits_for_its_time_and_slot(driver: StoreDriver) -> None:
    parent, holder = await driver.running(), await driver.running(concurrency_key="k")
    late = await driver.add(depends_on=(parent.job_id,), delay_ms=1_000)
    keyed_id = await driver.add(depends_on=(parent.job_id,), concurrency_key="k")
    await driver.done(parent)
    assert (await driver.get(late)).held is HoldReason.DELAY
    assert (await driver.get(keyed_id)).held is HoldReason.SLOT
    assert await driver.claim() == []
    driver.later(1_000)
    assert [j.job_id for j in await driver.claim()] == [late]
    await driver.done(holder)
    assert [j.job_id for j in await driver.claim()] == [keyed_id]


@pytest.mark.guarantee("S18")
async def test_dependents_of_a_failed_job_are_listed_until_settled(driver: StoreDriver) -> None:
    parent = await driver.running()
    child = await driver.add(depends_on=(parent.job_id,))
    grandchild = await driver.add(depends_on=(child,))
    assert await driver.store.with_failed_dependency(10) == []
    await driver.settle(commands.fail(parent, FATAL, rand=0))
    (broken_job,) = await driver.store.with_failed_dependency(10)
    assert (broken_job.job_id, broken_job.broken_by) == (child, parent.job_id)
    assert broken_job == await driver.get(child)
    await driver.settle(commands.cancel(broken_job, "a job it depends on failed"))
    (next_one,) = await driver.store.with_failed_dependency(10)
    assert next_one.job_id == grandchild
    await driver.settle(commands.cancel(next_one, "likewise"))
    assert await driver.store.with_failed_dependency(10) == []
    assert (await driver.store.counts())["default"] == {Status.FAILED: 1, Status.CANCELED: 2}


@pytest.mark.guarantee("S5", "S18")
async def test_a_dependency_that_has_failed_already_breaks_at_once(driver: StoreDriver) -> None:
    parent = await driver.running()
    await driver.settle(commands.fail(parent, FATAL, rand=0))
    child = await driver.add(depends_on=(parent.job_id,))
    assert [j.job_id for j in await driver.store.with_failed_dependency(10)] == [child]
    assert await driver.claim() == []


@pytest.mark.guarantee("S5")
async def test_the_run_policy_goes_on_after_a_failure(driver: StoreDriver) -> None:
    bad, good = await driver.running(), await driver.running()
    run = OnDependencyFailure.RUN
    child = await driver.add(depends_on=(bad.job_id, good.job_id), on_dependency_failure=run)
    await driver.settle(commands.fail(bad, FATAL, rand=0))
    await driver.done(good)
    assert [j.job_id for j in await driver.claim()] == [child]
    after = await driver.add(depends_on=(bad.job_id,), on_dependency_failure=run)
    assert [j.job_id for j in await driver.claim()] == [after]


@pytest.mark.guarantee("S5")
async def test_a_dependency_counts_once_however_often_it_ends(driver: StoreDriver) -> None:
    a, b = await driver.running(max_attempts=1), await driver.running()
    child = await driver.add(depends_on=(a.job_id, b.job_id), on_dependency_failure=OnDependencyFailure.RUN)
    await driver.settle(commands.fail(a, FATAL, rand=0))
    await driver.settle(commands.requeue(await driver.get(a.job_id)))
    (again,) = await driver.claim()
    await driver.done(again)
    assert (await driver.get(child)).blocked_by == 1
    assert await driver.claim() == []


@pytest.mark.guarantee("S5")
async def test_dependents_come_free_in_order(driver: StoreDriver) -> None:
    parent = await driver.running()
    children = [await driver.add(depends_on=(parent.job_id,)) for _ in range(5)]
    await driver.done(parent)
    assert [j.job_id for j in await driver.claim()] == children


@pytest.mark.guarantee("S5")
async def test_parents_that_end_together_free_a_child_once(driver: StoreDriver) -> None:
    for _ in range(10):
        parents = [await driver.running() for _ in range(4)]
        child = await driver.add(depends_on=tuple(p.job_id for p in parents))
        await asyncio.gather(*(driver.settle(commands.succeed(p)) for p in parents))
        (job,) = await driver.claim()
        assert (job.job_id, job.blocked_by) == (child, 0)
        await driver.done(job)


@pytest.mark.guarantee("S5")
async def test_enqueue_and_the_end_of_its_dependency_race_without_a_loss(driver: StoreDriver) -> None:
    for _ in range(10):
        parent = await driver.running()
        new = new_job(depends_on=(parent.job_id,))
        await asyncio.gather(driver.enqueue(new), driver.settle(commands.succeed(parent)))
        (job,) = await driver.claim()
        assert job.job_id == new.job_id
        await driver.done(job)
