from __future__ import annotations

import asyncio

import pytest

from callsheet.kernel import commands
from callsheet.kernel.job import HoldReason, OnDependencyFailure, Status
from callsheet.kernel.retry import JobError
from tests.kit import Kit, new_job

FATAL = JobError("fatal", "no")


@pytest.mark.guarantee("S5")
async def test_a_job_waits_for_all_that_it_depends_on(kit: Kit) -> None:
    a, b = await kit.running(), await kit.running()
    child = await kit.add(depends_on=(a.job_id, b.job_id, a.job_id))
    waiting = await kit.get(child)
    assert (waiting.held, waiting.blocked_by) == (HoldReason.DEPENDENCY, 2)
    await kit.done(a)
    assert await kit.claim() == []
    assert (await kit.get(child)).blocked_by == 1
    await kit.done(b)
    (job,) = await kit.claim()
    assert (job.job_id, job.blocked_by, job.held) == (child, 0, None)


@pytest.mark.guarantee("S5")
async def test_a_dependency_that_has_succeeded_does_not_block(kit: Kit) -> None:
    parent = await kit.running()
    await kit.done(parent)
    child = await kit.add(depends_on=(parent.job_id,))
    assert [j.job_id for j in await kit.claim()] == [child]


@pytest.mark.guarantee("S5")
async def test_a_retrying_dependency_still_blocks(kit: Kit) -> None:
    parent = await kit.running()
    child = await kit.add(depends_on=(parent.job_id,))
    await kit.settle(commands.retry(parent, JobError("x"), delay_ms=0))
    (again,) = await kit.claim()
    assert again.job_id == parent.job_id
    await kit.done(again)
    assert [j.job_id for j in await kit.claim()] == [child]


@pytest.mark.guarantee("S5")
async def test_an_unblocked_job_still_waits_for_its_time_and_slot(kit: Kit) -> None:
    parent, holder = await kit.running(), await kit.running(concurrency_key="k")
    late = await kit.add(depends_on=(parent.job_id,), delay_ms=1_000)
    keyed = await kit.add(depends_on=(parent.job_id,), concurrency_key="k")
    await kit.done(parent)
    assert (await kit.get(late)).held is HoldReason.DELAY
    assert (await kit.get(keyed)).held is HoldReason.SLOT
    assert await kit.claim() == []
    kit.later(1_000)
    assert [j.job_id for j in await kit.claim()] == [late]
    await kit.done(holder)
    assert [j.job_id for j in await kit.claim()] == [keyed]


@pytest.mark.guarantee("S18")
async def test_dependents_of_a_failed_job_are_listed_until_settled(kit: Kit) -> None:
    parent = await kit.running()
    child = await kit.add(depends_on=(parent.job_id,))
    grandchild = await kit.add(depends_on=(child,))
    assert await kit.store.broken(10) == []
    await kit.settle(commands.fail(parent, FATAL, rand=0))
    (broken,) = await kit.store.broken(10)
    assert (broken.job_id, broken.broken_by) == (child, parent.job_id)
    assert broken == await kit.get(child)
    await kit.settle(commands.cancel(broken, "a job it depends on failed"))
    (next_one,) = await kit.store.broken(10)
    assert next_one.job_id == grandchild
    await kit.settle(commands.cancel(next_one, "likewise"))
    assert await kit.store.broken(10) == []
    assert (await kit.store.counts())["default"] == {Status.FAILED: 1, Status.CANCELED: 2}


@pytest.mark.guarantee("S5", "S18")
async def test_a_dependency_that_has_failed_already_breaks_at_once(kit: Kit) -> None:
    parent = await kit.running()
    await kit.settle(commands.fail(parent, FATAL, rand=0))
    child = await kit.add(depends_on=(parent.job_id,))
    assert [j.job_id for j in await kit.store.broken(10)] == [child]
    assert await kit.claim() == []


@pytest.mark.guarantee("S5")
async def test_the_run_policy_goes_on_after_a_failure(kit: Kit) -> None:
    bad, good = await kit.running(), await kit.running()
    run = OnDependencyFailure.RUN
    child = await kit.add(depends_on=(bad.job_id, good.job_id), on_dependency_failure=run)
    await kit.settle(commands.fail(bad, FATAL, rand=0))
    await kit.done(good)
    assert [j.job_id for j in await kit.claim()] == [child]
    after = await kit.add(depends_on=(bad.job_id,), on_dependency_failure=run)
    assert [j.job_id for j in await kit.claim()] == [after]


@pytest.mark.guarantee("S5")
async def test_a_dependency_counts_once_however_often_it_ends(kit: Kit) -> None:
    a, b = await kit.running(max_attempts=1), await kit.running()
    child = await kit.add(depends_on=(a.job_id, b.job_id), on_dependency_failure=OnDependencyFailure.RUN)
    await kit.settle(commands.fail(a, FATAL, rand=0))
    await kit.settle(commands.requeue(await kit.get(a.job_id)))
    (again,) = await kit.claim()
    await kit.done(again)
    assert (await kit.get(child)).blocked_by == 1
    assert await kit.claim() == []


@pytest.mark.guarantee("S5")
async def test_dependents_come_free_in_order(kit: Kit) -> None:
    parent = await kit.running()
    children = [await kit.add(depends_on=(parent.job_id,)) for _ in range(5)]
    await kit.done(parent)
    assert [j.job_id for j in await kit.claim()] == children


@pytest.mark.guarantee("S5")
async def test_parents_that_end_together_free_a_child_once(kit: Kit) -> None:
    for _ in range(10):
        parents = [await kit.running() for _ in range(4)]
        child = await kit.add(depends_on=tuple(p.job_id for p in parents))
        await asyncio.gather(*(kit.settle(commands.succeed(p)) for p in parents))
        (job,) = await kit.claim()
        assert (job.job_id, job.blocked_by) == (child, 0)
        await kit.done(job)


@pytest.mark.guarantee("S5")
async def test_enqueue_and_the_end_of_its_dependency_race_without_a_loss(kit: Kit) -> None:
    for _ in range(10):
        parent = await kit.running()
        new = new_job(depends_on=(parent.job_id,))
        await asyncio.gather(kit.enqueue(new), kit.settle(commands.succeed(parent)))
        (job,) = await kit.claim()
        assert job.job_id == new.job_id
        await kit.done(job)
