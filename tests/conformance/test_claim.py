from __future__ import annotations

import asyncio
from typing import Any

import pytest

from callsheet.kernel import commands
from callsheet.kernel.job import HoldReason, Status
from callsheet.kernel.retry import JobError
from callsheet.store.protocol import ClaimRequest
from tests.store_driver import T0, StoreDriver, new_job


@pytest.mark.guarantee("S6")
async def test_a_claim_gives_a_lease_and_a_new_version(driver: StoreDriver) -> None:
    job_id = await driver.add(payload='{"x":1}')
    driver.later(50)
    job = await driver.claim_one(worker="w9", lease_ms=10_000)
    assert (job.job_id, job.payload, job.worker_id) == (job_id, '{"x":1}', "w9")
    assert (job.status, job.claim_version, job.attempt_count) == (Status.RUNNING, 1, 1)
    assert (job.lease_expires_at, job.heartbeat_at) == (T0 + 10_050, T0 + 50)
    assert (job.started_at, job.attempt_started_at, job.updated_at) == (T0 + 50,) * 3
    assert await driver.get(job_id) == job
    assert await driver.types(job_id) == ["queued", "running"]
    assert await driver.claim() == []


@pytest.mark.guarantee("S6")
async def test_a_claim_without_start_counts_no_attempt(driver: StoreDriver) -> None:
    job_id = await driver.add()
    job = await driver.claim_one(start=False)
    assert (job.status, job.claim_version, job.attempt_count) == (Status.RUNNING, 1, 0)
    assert (job.started_at, job.attempt_started_at, job.event_seq) == (None, None, 1)
    assert await driver.get(job_id) == job
    assert await driver.types(job_id) == ["queued"]
    await driver.settle(commands.start(job))
    started_job = await driver.get(job_id)
    assert (started_job.attempt_count, started_job.attempt_started_at) == (1, T0)
    assert await driver.types(job_id) == ["queued", "running"]


@pytest.mark.guarantee("S6")
async def test_a_claim_tells_all_of_a_job_with_a_past(driver: StoreDriver) -> None:
    job = await driver.running(
        requester_id="r", priority=7, run_at=T0 - 5, max_attempts=9, unique_key="u", concurrency_key="k", ttl_s=60,
        correlation_id="c",
    )  # fmt: skip
    await driver.settle(commands.refresh(job))
    await driver.settle(commands.advance(job, "fetching"))
    await driver.settle(commands.progress(await driver.get(job.job_id), 40))
    driver.later(60_000)
    await driver.settle(commands.lose_lease(await driver.get(job.job_id), rand=0.5))
    driver.later(60_000)
    for start in (False, True):
        again = await driver.claim_one(start=start)
        assert await driver.get(job.job_id) == again
        await driver.settle(commands.release(again))


@pytest.mark.guarantee("S6")
async def test_of_many_claimers_one_gets_the_job(driver: StoreDriver) -> None:
    await driver.add()
    claimed_jobs = await asyncio.gather(*(driver.claim(worker=f"w{n}") for n in range(50)))
    assert sum(len(jobs) for jobs in claimed_jobs) == 1


@pytest.mark.guarantee("S6")
async def test_many_claimers_share_many_jobs_without_overlap(driver: StoreDriver) -> None:
    new = [new_job() for _ in range(300)]
    await driver.enqueue(*new)
    claimed_jobs = await asyncio.gather(*(driver.claim(worker=f"w{n}", limit=7) for n in range(60)))
    ids = [job.job_id for jobs in claimed_jobs for job in jobs]
    while more := await driver.claim(limit=50):
        ids += [job.job_id for job in more]
    assert sorted(ids) == sorted(n.job_id for n in new)


@pytest.mark.guarantee("S7")
async def test_jobs_of_one_priority_come_in_order(driver: StoreDriver) -> None:
    ids = [a.job_id for a in await driver.enqueue(*(new_job() for _ in range(20)))]
    job_ids = [j.job_id for n in (1, 5, 14) for j in await driver.claim(limit=n)]
    assert job_ids == ids


@pytest.mark.guarantee("S7")
async def test_higher_priority_comes_first(driver: StoreDriver) -> None:
    low, high, middle, high2 = [await driver.add(priority=p) for p in (-5, 900, 0, 900)]
    assert [j.job_id for j in await driver.claim(limit=3)] == [high, high2, middle]
    assert [j.job_id for j in await driver.claim(limit=3)] == [low]


@pytest.mark.guarantee("S7")
async def test_queues_come_in_the_order_asked(driver: StoreDriver) -> None:
    b = await driver.add(queue="b", priority=100)
    a1, a2 = await driver.add(queue="a"), await driver.add(queue="a")
    await driver.add(queue="other")
    assert [j.job_id for j in await driver.claim("a", "b", limit=10)] == [a1, a2, b]
    assert await driver.claim("a", "b", "nobody") == []


@pytest.mark.guarantee("S7")
async def test_a_released_job_goes_to_the_end_of_the_line(driver: StoreDriver) -> None:
    first, second = await driver.add(), await driver.add()
    job = await driver.claim_one()
    assert job.job_id == first
    await driver.settle(commands.release(job))
    assert [j.job_id for j in await driver.claim()] == [second, first]


@pytest.mark.guarantee("S8")
async def test_a_delayed_job_waits_for_its_time(driver: StoreDriver) -> None:
    late, early = await driver.add(delay_ms=5_000), await driver.add(run_at=T0 + 2_000)
    assert (await driver.get(late)).held is HoldReason.DELAY
    assert await driver.claim() == []
    driver.later(1_999)
    assert await driver.claim() == []
    driver.later(1)
    assert [j.job_id for j in await driver.claim()] == [early]
    driver.later(3_000)
    (job,) = await driver.claim()
    assert (job.job_id, job.run_at, job.held) == (late, T0 + 5_000, None)


@pytest.mark.guarantee("S8")
async def test_due_jobs_enter_the_line_in_order_of_their_time(driver: StoreDriver) -> None:
    third, first, second = [await driver.add(delay_ms=d) for d in (30, 10, 20)]
    driver.later(100)
    assert [j.job_id for j in await driver.claim()] == [first, second, third]


@pytest.mark.guarantee("S8")
async def test_a_run_at_in_the_past_is_due_at_once(driver: StoreDriver) -> None:
    job_id = await driver.add(run_at=T0 - 1)
    assert [j.job_id for j in await driver.claim()] == [job_id]


@pytest.mark.guarantee("S8")
async def test_promote_brings_due_jobs_into_line(driver: StoreDriver) -> None:
    job_id = await driver.add(delay_ms=10, queue="q")
    assert await driver.store.promote(now=driver.now) == 0
    driver.later(10)
    assert await driver.store.promote(now=driver.now) == 1
    assert (await driver.get(job_id)).held is None
    assert await driver.store.promote(now=driver.now) == 0


@pytest.mark.guarantee("S8")
async def test_a_paused_queue_hands_out_nothing(driver: StoreDriver) -> None:
    job = await driver.running(queue="q")
    waiting = await driver.add(queue="q")
    await driver.store.pause("q", paused=True)
    await driver.store.pause("not-there-yet", paused=True)
    assert await driver.store.paused_queues() == {"q", "not-there-yet"}
    assert await driver.claim("q") == []
    await driver.done(job)
    await driver.store.pause("q", paused=False)
    await driver.store.pause("never-paused", paused=False)
    assert [j.job_id for j in await driver.claim("q")] == [waiting]
    assert await driver.store.paused_queues() == {"not-there-yet"}


@pytest.mark.guarantee("S9")
async def test_a_concurrency_key_limits_running_jobs(driver: StoreDriver) -> None:
    new = [new_job(concurrency_key="gpu", concurrency_limit=2) for _ in range(5)]
    await driver.enqueue(*new)
    free = await driver.add()
    jobs = await driver.claim()
    assert [j.job_id for j in jobs] == [new[0].job_id, new[1].job_id, free]
    assert (await driver.get(new[2].job_id)).held is HoldReason.SLOT
    await driver.done(jobs[0])
    assert [j.job_id for j in await driver.claim()] == [new[2].job_id]
    await driver.settle(commands.fail(jobs[1], JobError("fatal"), rand=0.5))
    assert [j.job_id for j in await driver.claim()] == [new[3].job_id]
    assert await driver.claim() == []


@pytest.mark.guarantee("S9")
async def test_a_slot_goes_to_the_highest_priority_that_waits(driver: StoreDriver) -> None:
    job = await driver.running(concurrency_key="k")
    await driver.add(concurrency_key="k", priority=1)
    high = await driver.add(concurrency_key="k", priority=2)
    await driver.done(job)
    assert [j.job_id for j in await driver.claim()] == [high]


@pytest.mark.guarantee("S9")
async def test_a_retrying_job_gives_its_slot_away_while_it_waits(driver: StoreDriver) -> None:
    job = await driver.running(concurrency_key="k")
    other = await driver.add(concurrency_key="k")
    await driver.settle(commands.retry(job, JobError("x"), delay_ms=1_000))
    (second,) = await driver.claim()
    assert second.job_id == other
    driver.later(1_000)
    assert await driver.claim() == []
    assert (await driver.get(job.job_id)).held is HoldReason.SLOT
    await driver.done(second)
    assert [j.job_id for j in await driver.claim()] == [job.job_id]


@pytest.mark.guarantee("S9")
async def test_cancelling_a_job_in_line_frees_its_slot(driver: StoreDriver) -> None:
    first, second = await driver.add(concurrency_key="k"), await driver.add(concurrency_key="k")
    await driver.settle(commands.cancel(await driver.get(first)))
    assert [j.job_id for j in await driver.claim()] == [second]


@pytest.mark.guarantee("S9")
async def test_the_limit_holds_under_many_claimers(driver: StoreDriver) -> None:
    await driver.enqueue(*(new_job(concurrency_key="k", concurrency_limit=3) for _ in range(30)))
    log: list[str] = []

    async def work(n: int) -> None:
        for _ in range(6):
            jobs = await driver.claim(worker=f"w{n}", limit=2)
            running = (await driver.store.counts())["default"].get(Status.RUNNING, 0)
            assert running <= 3
            for job in jobs:
                await driver.done(job)
                log.append(job.job_id)

    await asyncio.gather(*(work(n) for n in range(8)))
    while jobs := await driver.claim():
        for job in jobs:
            await driver.done(job)
            log.append(job.job_id)
    assert len(log) == len(set(log)) == 30


@pytest.mark.guarantee("S7")
async def test_a_claim_of_nothing_is_nothing(driver: StoreDriver) -> None:
    await driver.add()
    assert await driver.store.claim(ClaimRequest("w", (), 5), now=driver.now) == []
    assert await driver.claim(limit=0) == []


@pytest.mark.guarantee("S43")
async def test_a_claim_for_some_tenants_takes_theirs_alone_in_order(driver: StoreDriver) -> None:
    async def add(requester_id: str, **more: Any) -> str:
        return await driver.add(requester_id=requester_id, **more)

    theirs = [await add("b"), await add("b", priority=9), await add("")]
    low, first, second = await add("a", priority=-3), await add("a"), await add("c")
    high, elsewhere = await add("a", priority=7), await add("a", queue="q2")
    late = await add("a", delay_ms=10)
    driver.later(10)
    mine = frozenset({"a", "c"})
    jobs = [j for n in (1, 2, 9) for j in await driver.claim("default", "q2", limit=n, tenants=mine)]
    assert [j.job_id for j in jobs] == [high, first, second, late, low, elsewhere]
    for job in jobs:
        assert await driver.get(job.job_id) == job
        assert await driver.types(job.job_id) == ["queued", "running"]
    assert await driver.claim(tenants=mine) == []
    assert await driver.claim(tenants=frozenset()) == []
    assert [j.job_id for j in await driver.claim(tenants=frozenset({""}))] == [theirs[2]]
    assert [j.job_id for j in await driver.claim()] == [theirs[1], theirs[0]]


@pytest.mark.guarantee("S43")
async def test_jobs_taken_for_a_tenant_are_nobody_elses(driver: StoreDriver) -> None:
    await driver.enqueue(*(new_job(requester_id="ab"[n % 2]) for n in range(40)))
    bound_claims = [driver.claim(worker=f"b{n}", limit=3, tenants=frozenset({"a"})) for n in range(6)]
    free = [driver.claim(worker=f"f{n}", limit=3) for n in range(6)]
    got = [job for jobs in await asyncio.gather(*bound_claims, *free) for job in jobs]
    while more := await driver.claim(limit=50):
        got += more
    assert len(got) == len({job.job_id for job in got}) == 40
    assert {job.requester_id for job in got if (job.worker_id or "").startswith("b")} == {"a"}


@pytest.mark.guarantee("S43")
async def test_a_job_that_was_taken_for_a_tenant_moves_as_any_other(driver: StoreDriver) -> None:
    mine = frozenset({"a"})
    await driver.add(requester_id="b")
    job_id = await driver.add(requester_id="a", concurrency_key="k")
    waiting = await driver.add(requester_id="a", concurrency_key="k")
    job = await driver.claim_one(tenants=mine)
    assert [(beat.held) for beat in await driver.beat(job)] == [True]
    await driver.settle(commands.release(job))
    (again,) = await driver.claim(tenants=mine)
    assert again.job_id in (job_id, waiting)
    driver.later(60_000)
    assert [j.job_id for j in await driver.store.with_expired_lease(5, now=driver.now)] == [again.job_id]
    await driver.settle(commands.lose_lease(await driver.get(again.job_id), rand=0.5))
    driver.later(60_000)
    ends = []
    while jobs := await driver.claim(tenants=mine, limit=1):
        ends.append(jobs[0].job_id)
        await driver.done(jobs[0])
    assert sorted(ends) == sorted([job_id, waiting])
    assert await driver.store.backlog(now=driver.now) == {"default": (1, 0, 0, 120_000)}


@pytest.mark.guarantee("S43")
async def test_a_tenants_job_is_found_behind_many_of_others(driver: StoreDriver) -> None:
    for _ in range(5):
        await driver.enqueue(*(new_job(requester_id="b") for _ in range(500)))
    assert await driver.claim(tenants=frozenset({"a"})) == []
    job_id = await driver.add(requester_id="a")
    assert [j.job_id for j in await driver.claim(tenants=frozenset({"a"}))] == [job_id]
    await driver.store.pause("default", paused=True)
    await driver.add(requester_id="a")
    assert await driver.claim(tenants=frozenset({"a"})) == []


@pytest.mark.guarantee("S6")
async def test_a_worker_at_its_door_and_others_get_each_job_once(driver: StoreDriver) -> None:
    assert await driver.claim(worker="w1") == []
    async with await driver.store.door("w1", ["default"]) as door:
        door.open()
        ids = [await driver.add() for _ in range(4)]
        await door.shut()
        jobs = await driver.claim(worker="w1", limit=2) + await driver.claim(worker="w2", limit=9)
    assert sorted(job.job_id for job in jobs) == sorted(ids)
    assert [job.attempt_count for job in jobs] == [1] * 4


@pytest.mark.guarantee("S2")
async def test_a_worker_that_leaves_its_door_takes_no_job_with_it(driver: StoreDriver) -> None:
    assert await driver.claim(worker="w1") == []
    async with await driver.store.door("w1", ["default"]) as door:
        door.open()
        ids = [await driver.add() for _ in range(2)]
    jobs = await driver.claim(worker="w2", limit=9)
    assert sorted(job.job_id for job in jobs) == sorted(ids)
    assert [(job.attempt_count, job.claim_version, job.lease_losses) for job in jobs] == [(1, 1, 0)] * 2
