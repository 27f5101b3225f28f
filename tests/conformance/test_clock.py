"""A store after its clock has stepped; tests pass explicit times."""

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
from tests.store_driver import T0, StoreDriver, new_job

HOUR = 3_600_000
MARK = Document("clock", "store", "{}", 0)


async def _step(driver: StoreDriver, by_ms: int, since: int | None = None) -> Rebased:
    """Let the clock step, and the store know of it."""
    before = driver.now
    known = await driver.store.documents("clock", "store")
    mark = known[0] if known else MARK
    return await driver.store.rebase(ClockStep(before, driver.later(by_ms), since), mark)


async def _retried(driver: StoreDriver, job: Job, delay_s: int) -> None:
    """The job failed, and waits for its next attempt."""
    settlement = commands.fail(job, JobError("overloaded"), rand=0)._replace(delay_ms=delay_s * 1000)
    assert settlement.status is Status.QUEUED
    assert await driver.settle(settlement) == [Settled.APPLIED]


@pytest.mark.guarantee("S44")
async def test_a_delay_is_as_long_after_a_step_back_as_it_was_before(driver: StoreDriver) -> None:
    delayed_id, retried_id = await driver.add(delay_ms=60_000), await driver.running(queue="r")
    await _retried(driver, retried_id, 30)
    assert (await _step(driver, -6 * HOUR)).jobs == 2
    assert (await driver.get(delayed_id)).run_at == driver.now + 60_000
    assert (await driver.get(retried_id.job_id)).run_at == driver.now + 30_000
    driver.later(59_999)
    assert [job.job_id for job in await driver.claim("default", "r")] == [retried_id.job_id]
    driver.later(1)
    assert await driver.ids(await driver.claim()) == [delayed_id]


@pytest.mark.guarantee("S44")
async def test_a_delay_behind_a_dependency_is_moved_as_well(driver: StoreDriver) -> None:
    parent = await driver.running()
    child, broken_id = [await driver.add(depends_on=(parent.job_id,), delay_ms=60_000) for _ in range(2)]
    at_once = await driver.add(queue="at once", depends_on=(parent.job_id,))
    assert await driver.settle(commands.cancel(await driver.get(broken_id), "no")) == [Settled.APPLIED]
    assert (await _step(driver, -6 * HOUR)).jobs == 2
    await driver.done(await driver.get(parent.job_id))
    assert (await driver.get(child)).held is HoldReason.DELAY
    assert await driver.ids(await driver.claim("at once")) == [at_once]
    driver.later(60_000)
    assert await driver.ids(await driver.claim()) == [child]


@pytest.mark.guarantee("S44")
async def test_a_moment_that_was_asked_for_stays(driver: StoreDriver) -> None:
    asked_id = await driver.add(run_at=T0 + HOUR)
    assert (await driver.store.checkpoints(asked_id)) == {"~run_at": str(T0 + HOUR)}
    assert (await _step(driver, -6 * HOUR)).jobs == 0
    assert (await driver.get(asked_id)).run_at == T0 + HOUR
    driver.now = T0 + HOUR
    job = await driver.claim_one()
    await _retried(driver, job, 60)  # from now on it waits for a delay
    assert (await _step(driver, -2 * HOUR)).jobs == 1
    assert (await driver.get(asked_id)).run_at == driver.now + 60_000


@pytest.mark.guarantee("S44")
async def test_what_was_written_before_the_clock_was_ahead_stays(driver: StoreDriver) -> None:
    before = await driver.add(delay_ms=24 * HOUR)
    ahead = driver.later(6 * HOUR)
    since = await driver.add(delay_ms=24 * HOUR)
    assert (await _step(driver, -6 * HOUR, since=ahead)).jobs == 1
    assert [(await driver.get(job_id)).run_at for job_id in (before, since)] == [T0 + 24 * HOUR] * 2


@pytest.mark.guarantee("S44")
async def test_leases_of_a_clock_that_was_ahead_end_with_their_time_left(driver: StoreDriver) -> None:
    job = await driver.running()
    driver.later(10_000)
    assert (await _step(driver, -6 * HOUR)).leases == 1
    assert (await driver.get(job.job_id)).lease_expires_at == driver.now + 20_000
    assert await driver.store.with_expired_lease(10, now=driver.now + 20_000) == []
    assert await driver.ids(await driver.store.with_expired_lease(10, now=driver.now + 20_001)) == [job.job_id]


@pytest.mark.guarantee("S44")
async def test_leases_that_were_alive_outlive_a_step_forward_and_others_do_not(driver: StoreDriver) -> None:
    dead = await driver.running(queue="dead")
    driver.later(30_001)
    alive, unstarted_job = await driver.running(), None
    await driver.add(queue="ahead")
    unstarted_job = await driver.claim_one("ahead", start=False)
    driver.later(10_000)
    assert (await _step(driver, 6 * HOUR)).leases == 2
    assert await driver.ids(await driver.store.with_expired_lease(10, now=driver.now)) == [dead.job_id]
    assert (await driver.beat(alive, unstarted_job)) == [(True, False), (True, False)]
    driver.later(30_001)
    assert len(await driver.store.with_expired_lease(10, now=driver.now)) == 3


@pytest.mark.guarantee("S44")
@pytest.mark.parametrize("by_ms", [-6 * HOUR, 6 * HOUR])
async def test_a_lease_that_was_renewed_since_the_step_stays(driver: StoreDriver, by_ms: int) -> None:
    beaten = await driver.running()
    before = driver.now
    driver.later(by_ms)
    claimed_job = await driver.running(queue="new")
    await driver.beat(beaten)
    assert (await driver.store.rebase(ClockStep(before, driver.now), MARK)).leases == 0
    assert [(await driver.get(j.job_id)).lease_expires_at for j in (beaten, claimed_job)] == [driver.now + 30_000] * 2


@pytest.mark.guarantee("S44")
@pytest.mark.parametrize("by_ms", [-6 * HOUR, 6 * HOUR])
async def test_a_step_that_is_undone_before_the_next_beat_leaves_no_trace(driver: StoreDriver, by_ms: int) -> None:
    """Else a worker that dies in between is noticed as late as the step is long, or a living one loses its lease."""
    job = await driver.running()
    for _ in range(3):
        driver.later(1_000)
        assert (await _step(driver, by_ms)).leases == 1
        driver.later(1_000)
        assert (await _step(driver, -by_ms)).leases == 1
    assert (await driver.get(job.job_id)).lease_expires_at == driver.now + 24_000


@pytest.mark.guarantee("S44")
async def test_a_retried_jobs_new_claim_stays_though_its_last_event_has_yet_to_come(driver: StoreDriver) -> None:
    job = await driver.running()
    await _retried(driver, job, 1)
    await _step(driver, -6 * HOUR)
    driver.later(1_000)
    again = await driver.claim_one()
    before = driver.now + 6 * HOUR
    assert (await driver.store.rebase(ClockStep(before, driver.now), MARK._replace(version=1))).leases == 0
    assert (await driver.get(again.job_id)).lease_expires_at == driver.now + 30_000


@pytest.mark.guarantee("S44")
async def test_a_step_forward_moves_no_delay(driver: StoreDriver) -> None:
    delayed_id = await driver.add(delay_ms=12 * HOUR)
    assert await _step(driver, 6 * HOUR) == Rebased(0, 0, 0)
    assert (await driver.get(delayed_id)).run_at == T0 + 12 * HOUR


@pytest.mark.guarantee("S44")
async def test_callbacks_wait_as_long_as_they_would_have(driver: StoreDriver) -> None:
    job = await driver.running()
    events = tuple(NewOutboxEvent(name, f"https://{name}.example/", "b") for name in ("due", "later", "sent"))
    await driver.settle(commands.succeed(job, outbox=events))
    due, later, sent_event = await driver.store.outbox_claim("d", limit=3, lease_ms=30_000, now=driver.now)
    waits = [OutboxSettlement(e.event_id, e.claim_version, Delivery.PENDING, d) for e, d in ((due, 0), (later, 60_000))]
    await driver.store.outbox_settle(waits, now=driver.now)
    driver.later(10_000)
    assert (await _step(driver, -6 * HOUR)).callbacks == 3
    rows = {row.event_id: row for row in await driver.store.outbox_find()}
    assert rows["later"].run_at == driver.now + 50_000
    assert rows["sent"].lease_expires_at == driver.now + 20_000
    assert [e.event_id for e in await driver.store.outbox_claim("d", limit=3, lease_ms=1_000, now=driver.now)] == [
        "due"
    ]
    driver.later(50_000)
    jobs = await driver.store.outbox_claim("d", limit=3, lease_ms=1_000, now=driver.now)
    assert {e.event_id for e in jobs} == {"due", "later", "sent"}
    assert sent_event.event_id == "sent"


@pytest.mark.guarantee("S44")
async def test_a_delivery_outlives_a_step_forward(driver: StoreDriver) -> None:
    job = await driver.running()
    await driver.settle(commands.succeed(job, outbox=(NewOutboxEvent("a", "u", "b"),)))
    (event,) = await driver.store.outbox_claim("d", limit=1, lease_ms=30_000, now=driver.now)
    assert (await _step(driver, 6 * HOUR)).callbacks == 1
    assert await driver.store.outbox_claim("other", limit=1, lease_ms=30_000, now=driver.now) == []
    delivered = OutboxSettlement("a", event.claim_version, Delivery.DELIVERED)
    assert await driver.store.outbox_settle([delivered], now=driver.now) == [Settled.APPLIED]


@pytest.mark.guarantee("S44")
async def test_of_many_that_see_a_step_one_moves(driver: StoreDriver) -> None:
    delayed_id = await driver.add(delay_ms=60_000)
    step = ClockStep(T0, T0 - 6 * HOUR)
    answers = await asyncio.gather(*(driver.store.rebase(step, MARK) for _ in range(5)), return_exceptions=True)
    assert sorted(type(answer).__name__ for answer in answers) == [*["DocumentConflict"] * 4, "Rebased"]
    assert (await driver.get(delayed_id)).run_at == step.after + 60_000
    with pytest.raises(DocumentConflict, match="clock store is not at version 7"):
        await driver.store.rebase(step, MARK._replace(version=7))
    assert (await driver.store.documents("clock", "store")) == [MARK._replace(version=1)]


@pytest.mark.guarantee("S44")
async def test_what_was_moved_tells_of_its_past_as_before(driver: StoreDriver) -> None:
    job = await driver.running()
    await _retried(driver, job, 30)
    ended_job = await driver.running(queue="ended")
    await driver.done(ended_job)
    pasts = [await driver.get(job.job_id), await driver.get(ended_job.job_id)]
    events = await driver.events(job.job_id)
    await _step(driver, -6 * HOUR)
    assert await driver.get(job.job_id) == pasts[0]._replace(run_at=driver.now + 30_000)
    assert await driver.get(ended_job.job_id) == pasts[1]
    assert await driver.events(job.job_id) == events
    driver.later(30_000)
    assert (await driver.claim_one()).status is Status.RUNNING
    times = [event.ms for event in await driver.events(job.job_id)]
    assert times == sorted(times)
    assert times[-1] >= T0


async def test_a_batch_of_moments_and_delays_is_kept_apart(driver: StoreDriver) -> None:
    batch = [new_job(run_at=T0 + 5), new_job(delay_ms=5), new_job()]
    await driver.enqueue(*batch)
    checkpoints = [await driver.store.checkpoints(new.job_id) for new in batch]
    assert checkpoints == [{"~run_at": str(T0 + 5)}, {}, {}]
