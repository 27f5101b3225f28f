"""What a store does when its clock has stepped; the times of the clock are the tests' own."""

from __future__ import annotations

import asyncio

import pytest

from callsheet.kernel import commands
from callsheet.kernel.errors import DocumentConflict
from callsheet.kernel.job import Delivery, HoldReason, Job, NewOutboxEvent, Status
from callsheet.kernel.retry import JobError
from callsheet.kernel.settlement import OutboxSettlement
from callsheet.store.clock import ClockStep, Rebased
from callsheet.store.protocol import Document, Settled
from tests.kit import T0, Kit, new_job

HOUR = 3_600_000
MARK = Document("clock", "store", "{}", 0)


async def _step(kit: Kit, by_ms: int, since: int | None = None) -> Rebased:
    """Let the clock step, and the store know of it."""
    before = kit.now
    known = await kit.store.documents("clock", "store")
    mark = known[0] if known else MARK
    return await kit.store.rebase(ClockStep(before, kit.later(by_ms), since), mark)


async def _retried(kit: Kit, job: Job, delay_s: int) -> None:
    """The job failed, and waits for its next attempt."""
    settlement = commands.fail(job, JobError("overloaded"), rand=0)._replace(delay_ms=delay_s * 1000)
    assert settlement.status is Status.QUEUED
    assert await kit.settle(settlement) == [Settled.APPLIED]


@pytest.mark.guarantee("S44")
async def test_a_delay_is_as_long_after_a_step_back_as_it_was_before(kit: Kit) -> None:
    delayed, retried = await kit.add(delay_ms=60_000), await kit.running(queue="r")
    await _retried(kit, retried, 30)
    assert (await _step(kit, -6 * HOUR)).jobs == 2
    assert (await kit.get(delayed)).run_at == kit.now + 60_000
    assert (await kit.get(retried.job_id)).run_at == kit.now + 30_000
    kit.later(59_999)
    assert [job.job_id for job in await kit.claim("default", "r")] == [retried.job_id]
    kit.later(1)
    assert await kit.ids(await kit.claim()) == [delayed]


@pytest.mark.guarantee("S44")
async def test_a_delay_behind_a_dependency_is_moved_as_well(kit: Kit) -> None:
    parent = await kit.running()
    child, broken = [await kit.add(depends_on=(parent.job_id,), delay_ms=60_000) for _ in range(2)]
    at_once = await kit.add(queue="at once", depends_on=(parent.job_id,))
    assert await kit.settle(commands.cancel(await kit.get(broken), "no")) == [Settled.APPLIED]
    assert (await _step(kit, -6 * HOUR)).jobs == 2
    await kit.done(await kit.get(parent.job_id))
    assert (await kit.get(child)).held is HoldReason.DELAY
    assert await kit.ids(await kit.claim("at once")) == [at_once]
    kit.later(60_000)
    assert await kit.ids(await kit.claim()) == [child]


@pytest.mark.guarantee("S44")
async def test_a_moment_that_was_asked_for_stays(kit: Kit) -> None:
    asked = await kit.add(run_at=T0 + HOUR)
    assert (await kit.store.checkpoints(asked)) == {"~run_at": str(T0 + HOUR)}
    assert (await _step(kit, -6 * HOUR)).jobs == 0
    assert (await kit.get(asked)).run_at == T0 + HOUR
    kit.now = T0 + HOUR
    job = await kit.claim_one()
    await _retried(kit, job, 60)  # from now on it waits for a delay
    assert (await _step(kit, -2 * HOUR)).jobs == 1
    assert (await kit.get(asked)).run_at == kit.now + 60_000


@pytest.mark.guarantee("S44")
async def test_what_was_written_before_the_clock_was_ahead_stays(kit: Kit) -> None:
    before = await kit.add(delay_ms=24 * HOUR)
    ahead = kit.later(6 * HOUR)
    since = await kit.add(delay_ms=24 * HOUR)
    assert (await _step(kit, -6 * HOUR, since=ahead)).jobs == 1
    assert [(await kit.get(job_id)).run_at for job_id in (before, since)] == [T0 + 24 * HOUR] * 2


@pytest.mark.guarantee("S44")
async def test_leases_of_a_clock_that_was_ahead_end_with_their_time_left(kit: Kit) -> None:
    job = await kit.running()
    kit.later(10_000)
    assert (await _step(kit, -6 * HOUR)).leases == 1
    assert (await kit.get(job.job_id)).lease_expires_at == kit.now + 20_000
    assert await kit.store.expired(10, now=kit.now + 20_000) == []
    assert await kit.ids(await kit.store.expired(10, now=kit.now + 20_001)) == [job.job_id]


@pytest.mark.guarantee("S44")
async def test_leases_that_were_alive_outlive_a_step_forward_and_others_do_not(kit: Kit) -> None:
    dead = await kit.running(queue="dead")
    kit.later(30_001)
    alive, unstarted = await kit.running(), None
    await kit.add(queue="ahead")
    unstarted = await kit.claim_one("ahead", start=False)
    kit.later(10_000)
    assert (await _step(kit, 6 * HOUR)).leases == 2
    assert await kit.ids(await kit.store.expired(10, now=kit.now)) == [dead.job_id]
    assert (await kit.beat(alive, unstarted)) == [(True, False), (True, False)]
    kit.later(30_001)
    assert len(await kit.store.expired(10, now=kit.now)) == 3


@pytest.mark.guarantee("S44")
@pytest.mark.parametrize("by_ms", [-6 * HOUR, 6 * HOUR])
async def test_a_lease_that_was_renewed_since_the_step_stays(kit: Kit, by_ms: int) -> None:
    beaten = await kit.running()
    before = kit.now
    kit.later(by_ms)
    claimed = await kit.running(queue="new")
    await kit.beat(beaten)
    assert (await kit.store.rebase(ClockStep(before, kit.now), MARK)).leases == 0
    assert [(await kit.get(j.job_id)).lease_expires_at for j in (beaten, claimed)] == [kit.now + 30_000] * 2


@pytest.mark.guarantee("S44")
async def test_a_retried_jobs_new_claim_stays_though_its_last_event_has_yet_to_come(kit: Kit) -> None:
    job = await kit.running()
    await _retried(kit, job, 1)
    await _step(kit, -6 * HOUR)
    kit.later(1_000)
    again = await kit.claim_one()
    before = kit.now + 6 * HOUR
    assert (await kit.store.rebase(ClockStep(before, kit.now), MARK._replace(version=1))).leases == 0
    assert (await kit.get(again.job_id)).lease_expires_at == kit.now + 30_000


@pytest.mark.guarantee("S44")
async def test_a_step_forward_moves_no_delay(kit: Kit) -> None:
    delayed = await kit.add(delay_ms=12 * HOUR)
    assert await _step(kit, 6 * HOUR) == Rebased(0, 0, 0)
    assert (await kit.get(delayed)).run_at == T0 + 12 * HOUR


@pytest.mark.guarantee("S44")
async def test_callbacks_wait_as_long_as_they_would_have(kit: Kit) -> None:
    job = await kit.running()
    events = tuple(NewOutboxEvent(name, f"https://{name}.example/", "b") for name in ("due", "later", "sent"))
    await kit.settle(commands.succeed(job, outbox=events))
    due, later, sent = await kit.store.outbox_claim("d", limit=3, lease_ms=30_000, now=kit.now)
    waits = [OutboxSettlement(e.event_id, e.claim_version, Delivery.PENDING, d) for e, d in ((due, 0), (later, 60_000))]
    await kit.store.outbox_settle(waits, now=kit.now)
    kit.later(10_000)
    assert (await _step(kit, -6 * HOUR)).callbacks == 3
    rows = {row.event_id: row for row in await kit.store.outbox_find()}
    assert rows["later"].run_at == kit.now + 50_000
    assert rows["sent"].lease_expires_at == kit.now + 20_000
    assert [e.event_id for e in await kit.store.outbox_claim("d", limit=3, lease_ms=1_000, now=kit.now)] == ["due"]
    kit.later(50_000)
    taken = await kit.store.outbox_claim("d", limit=3, lease_ms=1_000, now=kit.now)
    assert {e.event_id for e in taken} == {"due", "later", "sent"}
    assert sent.event_id == "sent"


@pytest.mark.guarantee("S44")
async def test_a_delivery_outlives_a_step_forward(kit: Kit) -> None:
    job = await kit.running()
    await kit.settle(commands.succeed(job, outbox=(NewOutboxEvent("a", "u", "b"),)))
    (event,) = await kit.store.outbox_claim("d", limit=1, lease_ms=30_000, now=kit.now)
    assert (await _step(kit, 6 * HOUR)).callbacks == 1
    assert await kit.store.outbox_claim("other", limit=1, lease_ms=30_000, now=kit.now) == []
    delivered = OutboxSettlement("a", event.claim_version, Delivery.DELIVERED)
    assert await kit.store.outbox_settle([delivered], now=kit.now) == [Settled.APPLIED]


@pytest.mark.guarantee("S44")
async def test_of_many_that_see_a_step_one_moves(kit: Kit) -> None:
    delayed = await kit.add(delay_ms=60_000)
    step = ClockStep(T0, T0 - 6 * HOUR)
    answers = await asyncio.gather(*(kit.store.rebase(step, MARK) for _ in range(5)), return_exceptions=True)
    assert sorted(type(answer).__name__ for answer in answers) == [*["DocumentConflict"] * 4, "Rebased"]
    assert (await kit.get(delayed)).run_at == step.after + 60_000
    with pytest.raises(DocumentConflict, match="clock store is not at version 7"):
        await kit.store.rebase(step, MARK._replace(version=7))
    assert (await kit.store.documents("clock", "store")) == [MARK._replace(version=1)]


@pytest.mark.guarantee("S44")
async def test_what_was_moved_tells_of_its_past_as_before(kit: Kit) -> None:
    job = await kit.running()
    await _retried(kit, job, 30)
    ended = await kit.running(queue="ended")
    await kit.done(ended)
    pasts = [await kit.get(job.job_id), await kit.get(ended.job_id)]
    events = await kit.events(job.job_id)
    await _step(kit, -6 * HOUR)
    assert await kit.get(job.job_id) == pasts[0]._replace(run_at=kit.now + 30_000)
    assert await kit.get(ended.job_id) == pasts[1]
    assert await kit.events(job.job_id) == events
    kit.later(30_000)
    assert (await kit.claim_one()).status is Status.RUNNING
    times = [event.ms for event in await kit.events(job.job_id)]
    assert times == sorted(times)
    assert times[-1] >= T0


async def test_a_batch_of_moments_and_delays_is_kept_apart(kit: Kit) -> None:
    batch = [new_job(run_at=T0 + 5), new_job(delay_ms=5), new_job()]
    await kit.enqueue(*batch)
    found = [await kit.store.checkpoints(new.job_id) for new in batch]
    assert found == [{"~run_at": str(T0 + 5)}, {}, {}]
