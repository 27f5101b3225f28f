from __future__ import annotations

import pytest

from callsheet.kernel import commands
from callsheet.kernel.retry import JobError
from callsheet.store.protocol import ReadyJob
from tests.store_driver import StoreDriver, new_job


async def walk(driver: StoreDriver, limit: int) -> list[ReadyJob]:
    """The whole line, by pages."""
    results: list[ReadyJob] = []
    cursor: str | None = None
    while True:
        page = await driver.store.ready_jobs(limit, cursor=cursor)
        assert len(page.jobs) <= limit
        results += page.jobs
        cursor = page.cursor
        if cursor is None:
            return results


@pytest.mark.guarantee("S31")
@pytest.mark.parametrize("limit", [1, 2, 3, 100])
async def test_a_walk_lists_every_job_in_line_once_in_the_order_of_claims(driver: StoreDriver, limit: int) -> None:
    await driver.claim("a", "b", "default")  # where the line is a stream, it has been read before
    low, high, first, second, minus = (
        new_job(queue="b", priority=1),
        new_job(queue="b", priority=9),
        new_job(queue="b"),
        new_job(queue="b"),
        new_job(queue="b", priority=-2),
    )
    other = [new_job(queue="a"), new_job()]
    await driver.enqueue(low, high, first, second, minus, *other)
    expected = [other[0], high, low, first, second, minus, other[1]]
    assert await walk(driver, limit) == [ReadyJob(new.job_id, new.queue, 0) for new in expected]


@pytest.mark.guarantee("S31")
async def test_what_is_held_runs_or_has_ended_is_not_in_line(driver: StoreDriver) -> None:
    parent, child, later = new_job(), new_job(), new_job(delay_ms=50)
    await driver.enqueue(parent, child._replace(depends_on=(parent.job_id,)), later)
    slots = [new_job(queue="s", concurrency_key="k") for _ in range(2)]
    await driver.enqueue(*slots)
    assert {job.job_id for job in await walk(driver, 10)} == {parent.job_id, slots[0].job_id}
    job = await driver.claim_one()
    assert [ready.queue for ready in await walk(driver, 10)] == ["s"]
    await driver.done(job)
    assert {ready.job_id for ready in await walk(driver, 10)} == {child.job_id, slots[0].job_id}
    driver.later(50)
    await driver.store.promote(now=driver.now)
    assert later.job_id in {ready.job_id for ready in await walk(driver, 10)}


@pytest.mark.guarantee("S31")
async def test_a_job_that_comes_back_has_the_version_of_its_last_claim(driver: StoreDriver) -> None:
    job = await driver.running()
    await driver.settle(commands.release(job))
    assert await walk(driver, 10) == [ReadyJob(job.job_id, "default", 1)]
    again = await driver.claim_one()
    await driver.settle(commands.retry(again, JobError("x"), delay_ms=20))
    assert await walk(driver, 10) == []
    driver.later(20)
    await driver.store.promote(now=driver.now)
    assert await walk(driver, 10) == [ReadyJob(job.job_id, "default", 2)]
