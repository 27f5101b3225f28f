from __future__ import annotations

import asyncio

import pytest

from callsheet.kernel import commands
from callsheet.kernel.job import Outcome, Status
from callsheet.store.protocol import Beat, Settled
from tests.kit import T0, Kit


@pytest.mark.guarantee("S10")
async def test_a_heartbeat_extends_all_its_leases(kit: Kit) -> None:
    jobs = [await kit.running() for _ in range(3)]
    kit.later(20_000)
    assert await kit.beat(*jobs, lease_ms=30_000) == [Beat(held=True)] * 3
    job = await kit.get(jobs[1].job_id)
    assert (job.lease_expires_at, job.heartbeat_at) == (T0 + 50_000, T0 + 20_000)
    assert await kit.beat() == []


@pytest.mark.guarantee("S10", "S11")
async def test_a_stale_claim_cannot_heartbeat(kit: Kit) -> None:
    stale = await kit.running()
    await kit.settle(commands.release(stale))
    assert await kit.beat(stale) == [Beat(held=False)]
    fresh = await kit.claim_one(worker="w2")
    kit.later(1_000)
    assert await kit.beat(stale, lease_ms=99_000) == [Beat(held=False)]
    assert await kit.get(fresh.job_id) == fresh
    assert await kit.beat(stale, fresh) == [Beat(held=False), Beat(held=True)]
    await kit.done(fresh)
    assert await kit.beat(fresh) == [Beat(held=False)]
    assert (await kit.get(fresh.job_id)).lease_expires_at is None


@pytest.mark.guarantee("S10")
async def test_a_running_claim_sees_a_cancel_request(kit: Kit) -> None:
    job = await kit.running()
    assert await kit.settle(commands.request_cancel(job, "enough")) == [Settled.APPLIED]
    assert await kit.beat(job) == [Beat(held=True, cancel_requested=True)]
    seen = await kit.get(job.job_id)
    assert (seen.status, seen.cancel_requested_at, seen.cancel_reason) == (Status.RUNNING, T0, "enough")
    await kit.settle(commands.cancel(seen, "enough"))
    ended = await kit.get(job.job_id)
    assert (ended.status, ended.ended_at) == (Status.CANCELED, T0)
    assert await kit.types(job.job_id) == ["queued", "running", "cancel_requested", "canceled"]


@pytest.mark.guarantee("S45")
async def test_a_cancellation_leaves_a_lease_so_much_silence_and_no_more(kit: Kit) -> None:
    job, other = await kit.running(), await kit.running()
    kit.later(1_000)
    await kit.settle(commands.request_cancel(job, "enough", silent_after_ms=8_000))
    await kit.settle(commands.request_cancel(other, "enough", silent_after_ms=90_000))
    assert (await kit.get(job.job_id)).lease_expires_at == T0 + 8_000
    assert (await kit.get(other.job_id)).lease_expires_at == T0 + 30_000  # it is not extended
    kit.later(7_000)
    assert await kit.store.expired(10, now=kit.now) == []
    kit.later(1)
    (expired,) = await kit.store.expired(10, now=kit.now)
    assert await kit.settle(commands.lose_lease(expired, rand=0)) == [Settled.APPLIED]
    assert await kit.settle(commands.succeed(job)) == [Settled.STALE]
    ended = await kit.get(job.job_id)
    assert (ended.status, ended.cancel_reason) == (Status.CANCELED, "enough")
    assert await kit.types(job.job_id) == ["queued", "running", "cancel_requested", "canceled"]


@pytest.mark.guarantee("S45")
async def test_a_beat_of_a_job_that_is_to_be_cancelled_is_good_for_two_beats(kit: Kit) -> None:
    job, other = await kit.running(), await kit.running()
    await kit.settle(commands.request_cancel(job, "enough"))
    kit.later(1_000)
    assert await kit.beat(job, other) == [Beat(held=True, cancel_requested=True), Beat(held=True)]
    found = [(await kit.get(one.job_id)).lease_expires_at for one in (job, other)]
    assert found == [T0 + 21_000, T0 + 31_000]
    beats = await kit.store.heartbeat([job.claim, other.claim], lease_ms=30_000, silence_ms=8_000, now=kit.now)
    assert [beat.held for beat in beats] == [True, True]
    found = [(await kit.get(one.job_id)).lease_expires_at for one in (job, other)]
    assert found == [T0 + 9_000, T0 + 31_000]


@pytest.mark.guarantee("S17")
async def test_only_the_lease_decides_what_is_expired(kit: Kit) -> None:
    job = await kit.running()
    kit.later(29_999)
    await kit.settle(commands.progress(job, 10))
    assert await kit.store.expired(10, now=kit.now) == []
    kit.later(1)
    assert await kit.store.expired(10, now=kit.now) == []
    kit.later(1)
    (expired,) = await kit.store.expired(10, now=kit.now)
    assert expired.job_id == job.job_id
    assert expired == await kit.get(job.job_id)


@pytest.mark.guarantee("S17")
async def test_the_longest_expired_come_first(kit: Kit) -> None:
    await kit.add()
    await kit.add()
    late = await kit.claim_one(lease_ms=2_000)
    early = await kit.claim_one(lease_ms=1_000)
    kit.later(10_000)
    assert [j.job_id for j in await kit.store.expired(10, now=kit.now)] == [early.job_id, late.job_id]
    assert len(await kit.store.expired(1, now=kit.now)) == 1


@pytest.mark.guarantee("S15", "S17")
async def test_a_lost_lease_requeues_and_fences_the_worker(kit: Kit) -> None:
    job = await kit.running()
    kit.later(30_001)
    assert await kit.settle(commands.lose_lease(job, rand=0)) == [Settled.APPLIED]
    lost = await kit.get(job.job_id)
    assert (lost.status, lost.lease_losses, lost.attempt_count, lost.worker_id) == (Status.QUEUED, 1, 1, None)
    assert await kit.settle(commands.succeed(job)) == [Settled.STALE]
    (again,) = await kit.claim(worker="w2")
    assert again.claim_version == 2
    assert await kit.settle(commands.succeed(job)) == [Settled.STALE]
    await kit.done(again)
    first, second = await kit.store.attempts(job.job_id)
    assert (first.worker_id, first.outcome, second.worker_id) == ("w1", Outcome.LEASE_LOST, "w2")


@pytest.mark.guarantee("S15")
async def test_a_heartbeat_in_between_wins_over_the_reaper(kit: Kit) -> None:
    job = await kit.running()
    kit.later(30_001)
    (expired,) = await kit.store.expired(10, now=kit.now)
    await kit.beat(job)
    assert await kit.settle(commands.lose_lease(expired, rand=0)) == [Settled.STALE]
    assert (await kit.get(job.job_id)).lease_losses == 0
    await kit.done(job)


@pytest.mark.guarantee("S15")
async def test_reaper_and_worker_race_to_one_outcome(kit: Kit) -> None:
    for n in range(20):
        job = await kit.running()
        kit.later(30_001)
        lose, win = commands.lose_lease(job, rand=0), commands.succeed(job)
        order = (lose, win) if n % 2 else (win, lose)
        answers = await asyncio.gather(*(kit.settle(s) for s in order))
        assert sorted(a[0] for a in answers) == [Settled.APPLIED, Settled.STALE]
        after = await kit.get(job.job_id)
        if after.status is Status.QUEUED:
            (again,) = await kit.claim()
            await kit.done(again)
        assert (await kit.types(job.job_id)).count("done") == 1


@pytest.mark.guarantee("S17")
async def test_an_unstarted_claim_that_is_lost_counts_as_an_attempt(kit: Kit) -> None:
    job_id = await kit.add(max_attempts=5)
    job = await kit.claim_one(start=False)
    kit.later(30_001)
    await kit.settle(commands.lose_lease(job, rand=0))
    lost = await kit.get(job_id)
    assert (lost.attempt_count, lost.lease_losses, lost.started_at) == (1, 1, kit.now)
    (attempt,) = await kit.store.attempts(job_id)
    assert (attempt.attempt, attempt.outcome) == (1, Outcome.LEASE_LOST)


@pytest.mark.guarantee("S17")
@pytest.mark.parametrize(("losses", "retry"), [(5, ""), (3, '{"max_lease_losses":3}')], ids=["budget", "policy"])
async def test_a_job_that_kills_its_workers_becomes_a_dead_letter(kit: Kit, losses: int, retry: str) -> None:
    """Its attempts decide how often, unless its policy says less."""
    job_id = await kit.add(max_attempts=5, retry=retry)
    for _ in range(losses):
        kit.later(60_000)
        job = await kit.claim_one()
        kit.later(30_001)
        await kit.settle(commands.lose_lease(await kit.get(job.job_id), rand=0))
    dead = await kit.get(job_id)
    assert (dead.status, dead.lease_losses) == (Status.DEAD_LETTER, losses)
    assert dead.error is not None
    assert "worker_lost" in dead.error
    kit.later(10**7)
    assert await kit.claim() == []


@pytest.mark.guarantee("S17")
async def test_a_job_that_only_waited_in_a_lost_worker_goes_back_at_no_cost(kit: Kit) -> None:
    job_id = await kit.add(max_attempts=1)
    for worker in ("w1~+1", "w2~ahead-2"):
        job = await kit.claim_one(worker=worker)
        assert await kit.settle(commands.lose_lease(job, rand=0, begun=False)) == [Settled.STALE]  # it is held
        kit.later(30_001)
        assert await kit.settle(commands.lose_lease(job, rand=0, begun=False)) == [Settled.APPLIED]
        back = await kit.get(job_id)
        assert (back.status, back.held, back.attempt_count, back.lease_losses) == (Status.QUEUED, None, 0, 0)
        assert back.error is not None
        assert commands.LOST_EARLY in back.error
    await kit.done(await kit.claim_one())  # it is in line, and its one attempt is left
    assert (await kit.get(job_id)).attempt_count == 1


@pytest.mark.guarantee("S30")
async def test_what_a_worker_holds_is_listed_until_it_is_settled(kit: Kit) -> None:
    first, second = await kit.running(), await kit.running()
    await kit.add()
    other = await kit.claim_one(worker="w2")
    held = await kit.store.held_by("w1", 10)
    assert held == [await kit.get(first.job_id), await kit.get(second.job_id)]
    assert [job.job_id for job in await kit.store.held_by("w1", 1)] == [first.job_id]
    kit.later(60_000)  # over, and not yet reaped
    await kit.done(first)
    assert [job.job_id for job in await kit.store.held_by("w1", 10)] == [second.job_id]
    assert [job.job_id for job in await kit.store.held_by("w2", 10)] == [other.job_id]
    assert await kit.store.held_by("nobody", 10) == []
