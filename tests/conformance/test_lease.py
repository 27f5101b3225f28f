from __future__ import annotations

import asyncio

import pytest

from callsheet.kernel import commands
from callsheet.kernel.job import Outcome, Status
from callsheet.store.protocol import HeartbeatResult, Settled
from tests.store_driver import T0, StoreDriver


@pytest.mark.guarantee("S10")
async def test_a_heartbeat_extends_all_its_leases(driver: StoreDriver) -> None:
    jobs = [await driver.running() for _ in range(3)]
    driver.later(20_000)
    assert await driver.beat(*jobs, lease_ms=30_000) == [HeartbeatResult(held=True)] * 3
    job = await driver.get(jobs[1].job_id)
    assert (job.lease_expires_at, job.heartbeat_at) == (T0 + 50_000, T0 + 20_000)
    assert await driver.beat() == []


@pytest.mark.guarantee("S10", "S11")
async def test_a_stale_claim_cannot_heartbeat(driver: StoreDriver) -> None:
    stale = await driver.running()
    await driver.settle(commands.release(stale))
    assert await driver.beat(stale) == [HeartbeatResult(held=False)]
    fresh = await driver.claim_one(worker="w2")
    driver.later(1_000)
    assert await driver.beat(stale, lease_ms=99_000) == [HeartbeatResult(held=False)]
    assert await driver.get(fresh.job_id) == fresh
    assert await driver.beat(stale, fresh) == [HeartbeatResult(held=False), HeartbeatResult(held=True)]
    await driver.done(fresh)
    assert await driver.beat(fresh) == [HeartbeatResult(held=False)]
    assert (await driver.get(fresh.job_id)).lease_expires_at is None


@pytest.mark.guarantee("S10")
async def test_a_running_claim_sees_a_cancel_request(driver: StoreDriver) -> None:
    job = await driver.running()
    assert await driver.settle(commands.request_cancel(job, "enough")) == [Settled.APPLIED]
    assert await driver.beat(job) == [HeartbeatResult(held=True, cancel_requested=True)]
    seen = await driver.get(job.job_id)
    assert (seen.status, seen.cancel_requested_at, seen.cancel_reason) == (Status.RUNNING, T0, "enough")
    await driver.settle(commands.cancel(seen, "enough"))
    ended_job = await driver.get(job.job_id)
    assert (ended_job.status, ended_job.ended_at) == (Status.CANCELED, T0)
    assert await driver.types(job.job_id) == ["queued", "running", "cancel_requested", "canceled"]


@pytest.mark.guarantee("S45")
async def test_a_cancellation_leaves_a_lease_so_much_silence_and_no_more(driver: StoreDriver) -> None:
    job, other = await driver.running(), await driver.running()
    driver.later(1_000)
    await driver.settle(commands.request_cancel(job, "enough", silent_after_ms=8_000))
    await driver.settle(commands.request_cancel(other, "enough", silent_after_ms=90_000))
    assert (await driver.get(job.job_id)).lease_expires_at == T0 + 8_000
    assert (await driver.get(other.job_id)).lease_expires_at == T0 + 30_000  # it is not extended
    driver.later(7_000)
    assert await driver.store.with_expired_lease(10, now=driver.now) == []
    driver.later(1)
    (expired_job,) = await driver.store.with_expired_lease(10, now=driver.now)
    assert await driver.settle(commands.lose_lease(expired_job, rand=0)) == [Settled.APPLIED]
    assert await driver.settle(commands.succeed(job)) == [Settled.STALE]
    ended_job = await driver.get(job.job_id)
    assert (ended_job.status, ended_job.cancel_reason) == (Status.CANCELED, "enough")
    assert await driver.types(job.job_id) == ["queued", "running", "cancel_requested", "canceled"]


@pytest.mark.guarantee("S45")
async def test_a_beat_of_a_job_that_is_to_be_cancelled_is_good_for_two_beats(driver: StoreDriver) -> None:
    job, other = await driver.running(), await driver.running()
    await driver.settle(commands.request_cancel(job, "enough"))
    driver.later(1_000)
    assert await driver.beat(job, other) == [
        HeartbeatResult(held=True, cancel_requested=True),
        HeartbeatResult(held=True),
    ]
    jobs = [(await driver.get(one.job_id)).lease_expires_at for one in (job, other)]
    assert jobs == [T0 + 21_000, T0 + 31_000]
    beats = await driver.store.heartbeat([job.claim, other.claim], lease_ms=30_000, silence_ms=8_000, now=driver.now)
    assert [beat.held for beat in beats] == [True, True]
    jobs = [(await driver.get(one.job_id)).lease_expires_at for one in (job, other)]
    assert jobs == [T0 + 9_000, T0 + 31_000]


@pytest.mark.guarantee("S17")
async def test_only_the_lease_decides_what_is_expired(driver: StoreDriver) -> None:
    job = await driver.running()
    driver.later(29_999)
    await driver.settle(commands.progress(job, 10))
    assert await driver.store.with_expired_lease(10, now=driver.now) == []
    driver.later(1)
    assert await driver.store.with_expired_lease(10, now=driver.now) == []
    driver.later(1)
    (expired_job,) = await driver.store.with_expired_lease(10, now=driver.now)
    assert expired_job.job_id == job.job_id
    assert expired_job == await driver.get(job.job_id)


@pytest.mark.guarantee("S17")
async def test_the_longest_expired_come_first(driver: StoreDriver) -> None:
    await driver.add()
    await driver.add()
    late = await driver.claim_one(lease_ms=2_000)
    early = await driver.claim_one(lease_ms=1_000)
    driver.later(10_000)
    assert [j.job_id for j in await driver.store.with_expired_lease(10, now=driver.now)] == [early.job_id, late.job_id]
    assert len(await driver.store.with_expired_lease(1, now=driver.now)) == 1


@pytest.mark.guarantee("S15", "S17")
async def test_a_lost_lease_requeues_and_fences_the_worker(driver: StoreDriver) -> None:
    job = await driver.running()
    driver.later(30_001)
    assert await driver.settle(commands.lose_lease(job, rand=0)) == [Settled.APPLIED]
    lost_job = await driver.get(job.job_id)
    assert (lost_job.status, lost_job.lease_losses, lost_job.attempt_count, lost_job.worker_id) == (
        Status.QUEUED,
        1,
        1,
        None,
    )
    assert await driver.settle(commands.succeed(job)) == [Settled.STALE]
    (again,) = await driver.claim(worker="w2")
    assert again.claim_version == 2
    assert await driver.settle(commands.succeed(job)) == [Settled.STALE]
    await driver.done(again)
    first, second = await driver.store.attempts(job.job_id)
    assert (first.worker_id, first.outcome, second.worker_id) == ("w1", Outcome.LEASE_LOST, "w2")


@pytest.mark.guarantee("S15")
async def test_a_heartbeat_in_between_wins_over_the_reaper(driver: StoreDriver) -> None:
    job = await driver.running()
    driver.later(30_001)
    (expired_job,) = await driver.store.with_expired_lease(10, now=driver.now)
    await driver.beat(job)
    assert await driver.settle(commands.lose_lease(expired_job, rand=0)) == [Settled.STALE]
    assert (await driver.get(job.job_id)).lease_losses == 0
    await driver.done(job)


@pytest.mark.guarantee("S15")
async def test_reaper_and_worker_race_to_one_outcome(driver: StoreDriver) -> None:
    for n in range(20):
        job = await driver.running()
        driver.later(30_001)
        lose, win = commands.lose_lease(job, rand=0), commands.succeed(job)
        order = (lose, win) if n % 2 else (win, lose)
        answers = await asyncio.gather(*(driver.settle(s) for s in order))
        assert sorted(a[0] for a in answers) == [Settled.APPLIED, Settled.STALE]
        after = await driver.get(job.job_id)
        if after.status is Status.QUEUED:
            (again,) = await driver.claim()
            await driver.done(again)
        assert (await driver.types(job.job_id)).count("done") == 1


@pytest.mark.guarantee("S17")
async def test_an_unstarted_claim_that_is_lost_counts_as_an_attempt(driver: StoreDriver) -> None:
    job_id = await driver.add(max_attempts=5)
    job = await driver.claim_one(start=False)
    driver.later(30_001)
    await driver.settle(commands.lose_lease(job, rand=0))
    lost_job = await driver.get(job_id)
    assert (lost_job.attempt_count, lost_job.lease_losses, lost_job.started_at) == (1, 1, driver.now)
    (attempt,) = await driver.store.attempts(job_id)
    assert (attempt.attempt, attempt.outcome) == (1, Outcome.LEASE_LOST)


@pytest.mark.guarantee("S17")
@pytest.mark.parametrize(("losses", "retry"), [(5, ""), (3, '{"max_lease_losses":3}')], ids=["budget", "policy"])
async def test_a_job_that_kills_its_workers_becomes_a_dead_letter(driver: StoreDriver, losses: int, retry: str) -> None:
    """Its attempts decide how often, unless its policy says less."""
    job_id = await driver.add(max_attempts=5, retry=retry)
    for _ in range(losses):
        driver.later(60_000)
        job = await driver.claim_one()
        driver.later(30_001)
        await driver.settle(commands.lose_lease(await driver.get(job.job_id), rand=0))
    dead = await driver.get(job_id)
    assert (dead.status, dead.lease_losses) == (Status.DEAD_LETTER, losses)
    assert dead.error is not None
    assert "worker_lost" in dead.error
    driver.later(10**7)
    assert await driver.claim() == []


@pytest.mark.guarantee("S17")
async def test_a_job_that_only_waited_in_a_lost_worker_goes_back_at_no_cost(driver: StoreDriver) -> None:
    job_id = await driver.add(max_attempts=1)
    for worker in ("w1~+1", "w2~ahead-2"):
        job = await driver.claim_one(worker=worker)
        assert await driver.settle(commands.lose_lease(job, rand=0, has_begun=False)) == [Settled.STALE]  # it is held
        driver.later(30_001)
        assert await driver.settle(commands.lose_lease(job, rand=0, has_begun=False)) == [Settled.APPLIED]
        back = await driver.get(job_id)
        assert (back.status, back.held, back.attempt_count, back.lease_losses) == (Status.QUEUED, None, 0, 0)
        assert back.error is not None
        assert commands.LOST_EARLY in back.error
    await driver.done(await driver.claim_one())  # it is in line, and its one attempt is left
    assert (await driver.get(job_id)).attempt_count == 1


@pytest.mark.guarantee("S30")
async def test_what_a_worker_holds_is_listed_until_it_is_settled(driver: StoreDriver) -> None:
    first, second = await driver.running(), await driver.running()
    await driver.add()
    other = await driver.claim_one(worker="w2")
    held = await driver.store.running_of("w1", 10)
    assert held == [await driver.get(first.job_id), await driver.get(second.job_id)]
    assert [job.job_id for job in await driver.store.running_of("w1", 1)] == [first.job_id]
    driver.later(60_000)  # over, and not yet reaped
    await driver.done(first)
    assert [job.job_id for job in await driver.store.running_of("w1", 10)] == [second.job_id]
    assert [job.job_id for job in await driver.store.running_of("w2", 10)] == [other.job_id]
    assert await driver.store.running_of("nobody", 10) == []
