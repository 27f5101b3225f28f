from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from callsheet.kernel import apply, commands
from callsheet.kernel.apply import timeline_faults
from callsheet.kernel.errors import DuplicateJob
from callsheet.kernel.job import Attempt, Delivery, HoldReason, Job, NewOutboxEvent, Outcome, Status
from callsheet.kernel.retry import JobError
from callsheet.kernel.settlement import Settlement
from callsheet.store.protocol import Settled
from tests.store_driver import T0, StoreDriver, new_job

ERROR = JobError("500", "it broke")
WRITES = (
    "advance",
    "progress",
    "checkpoint",
    "refresh",
    "succeed",
    "fail",
    "retry",
    "release",
    "cancel",
    "request_cancel",
    "lose_lease",
)


def every_write(job: Job) -> dict[str, Settlement]:
    """Return every kind of write that a claim's holder may request."""
    return {
        "advance": commands.advance(job, "fetching"),
        "progress": commands.progress(job, 50),
        "checkpoint": commands.checkpoint(job, "voice", "1"),
        "refresh": commands.refresh(job),
        "succeed": commands.succeed(job, "1", outbox=(NewOutboxEvent("e", "http://x", "b"),), follow_ups=(new_job(),)),
        "fail": commands.fail(job, JobError("fatal"), rand=0),
        "retry": commands.retry(job, ERROR, delay_ms=0),
        "release": commands.release(job),
        "cancel": commands.cancel(job),
        "request_cancel": commands.request_cancel(job),
        "lose_lease": commands.lose_lease(job, rand=0)._replace(expired_only=False),
    }


@pytest.mark.guarantee("S11")
@pytest.mark.parametrize("name", WRITES)
async def test_a_stale_claim_cannot_write(driver: StoreDriver, name: str) -> None:
    stale = await driver.running(max_attempts=5)
    await driver.settle(commands.release(stale))
    await driver.claim_one(worker="w2")
    before = await snapshot(driver, stale.job_id)
    driver.later(5)
    write = every_write(stale)[name]
    assert await driver.settle(write) == [Settled.REPEATED if name == "release" else Settled.STALE]
    assert await snapshot(driver, stale.job_id) == before
    if write.follow_ups:
        assert await driver.store.get([write.follow_ups[0].job_id]) == [None]


@pytest.mark.guarantee("S11")
async def test_a_write_after_the_end_is_stale(driver: StoreDriver) -> None:
    job = await driver.running()
    await driver.done(job)
    before = await snapshot(driver, job.job_id)
    for name, write in every_write(job).items():
        if name != "succeed":
            assert await driver.settle(write) == [Settled.STALE], name
    assert await snapshot(driver, job.job_id) == before


@pytest.mark.guarantee("S11")
async def test_an_unknown_job_is_stale(driver: StoreDriver) -> None:
    job = (await driver.running())._replace(job_id=new_job().job_id)
    assert await driver.settle(commands.succeed(job)) == [Settled.STALE]


@pytest.mark.guarantee("S11", "S12")
async def test_a_batch_settles_each_on_its_own(driver: StoreDriver) -> None:
    a, b, c = [await driver.running() for _ in range(3)]
    await driver.done(b)
    answers = await driver.settle(commands.succeed(a), commands.progress(b, 5), commands.succeed(c, '"x"'))
    assert answers == [Settled.APPLIED, Settled.STALE, Settled.APPLIED]
    assert (await driver.get(c.job_id)).result == '"x"'


@pytest.mark.guarantee("S11", "S12")
async def test_a_batch_of_ends_is_fenced_one_by_one(driver: StoreDriver) -> None:
    texts = [f'"ü\u2028\\u0000 \U0001f3ac {n}"' for n in range(6)]
    jobs = [await driver.running() for _ in texts]
    await driver.settle(commands.release(jobs[1]), commands.cancel(jobs[4]))
    await driver.claim(worker="w2")
    ends = [commands.succeed(job, text) for job, text in zip(jobs, texts, strict=True)]
    one_stale = [Settled.APPLIED, Settled.STALE, Settled.APPLIED]
    assert await driver.settle(*ends[:3]) == one_stale
    assert await driver.settle(*ends[3:]) == one_stale
    for n, job in enumerate(jobs):
        after = await driver.get(job.job_id)
        if n in (1, 4):
            assert after.result is None
            assert "done" not in await driver.types(job.job_id)
        else:
            assert (after.status, after.result, after.progress) == (Status.SUCCEEDED, texts[n], 100.0)
            assert (await driver.types(job.job_id))[-1] == "done"


@pytest.mark.guarantee("S12")
async def test_a_batch_of_ends_keeps_apart_what_differs(driver: StoreDriver) -> None:
    jobs = [await driver.running(max_attempts=5) for _ in range(6)]
    await driver.settle(*map(commands.release, jobs[::2]))
    jobs = [*await driver.claim(worker="w2"), *jobs[1::2]]
    await driver.settle(*(commands.advance(job, f"at {n}") for n, job in enumerate(jobs) if n % 3))
    jobs = [await driver.get(job.job_id) for job in jobs]
    ends = {job.job_id: commands.succeed(job, f"{n}") for n, job in enumerate(jobs)}
    assert await driver.settle(*(ends[job_id] for job_id in sorted(ends, reverse=True))) == [Settled.APPLIED] * 6
    for n, job in enumerate(jobs):
        after, (done_event,) = await driver.get(job.job_id), (await driver.events(job.job_id))[-1:]
        assert (after.result, after.claim_version, after.stage) == (
            f"{n}",
            job.claim_version,
            f"at {n}" if n % 3 else "",
        )
        assert (done_event.type, done_event.step) == ("done", after.stage)


@pytest.mark.guarantee("S9", "S12")
async def test_a_batch_of_ends_frees_slots_and_dependents(driver: StoreDriver) -> None:
    plain, keyed_job, parent = await driver.running(), await driver.running(concurrency_key="k"), await driver.running()
    waiting = await driver.add(concurrency_key="k")
    assert await driver.settle(commands.succeed(plain), commands.succeed(keyed_job)) == [Settled.APPLIED] * 2
    assert [j.job_id for j in await driver.claim()] == [waiting]
    child, other = await driver.add(depends_on=(parent.job_id,)), await driver.running(queue="q")
    assert await driver.settle(commands.succeed(parent), commands.succeed(other)) == [Settled.APPLIED] * 2
    assert [j.job_id for j in await driver.claim()] == [child]


@pytest.mark.guarantee("S12")
async def test_one_job_may_move_twice_in_a_batch(driver: StoreDriver) -> None:
    await driver.add()
    job = await driver.claim_one(start=False)
    start = commands.start(job)
    begun = apply.after_settlement(job, start, driver.now)
    answers = await driver.settle(
        start, commands.progress(begun, 5), commands.succeed(begun), commands.progress(begun, 50)
    )
    assert answers == [Settled.APPLIED] * 3 + [Settled.STALE]
    after = await driver.get(job.job_id)
    assert (after.status, after.attempt_count, after.event_seq) == (Status.SUCCEEDED, 1, 4)
    assert await driver.types(job.job_id) == ["queued", "running", "progress", "done"]


@pytest.mark.guarantee("S12")
async def test_success_is_one_write(driver: StoreDriver) -> None:
    job = await driver.running(requester_id="acme")
    driver.later(100)
    follow = new_job("next", requester_id="acme")
    outbox = NewOutboxEvent("ev-1", "https://example.org/hook", '{"a": 1}')
    await driver.settle(commands.succeed(job, '{"ok":true}', outbox=(outbox,), follow_ups=(follow,)))
    after = await driver.get(job.job_id)
    assert (after.status, after.result, after.progress) == (Status.SUCCEEDED, '{"ok":true}', 100.0)
    assert (after.ended_at, after.updated_at, after.lease_expires_at) == (T0 + 100, T0 + 100, None)
    assert (after.worker_id, after.attempt_started_at, after.heartbeat_at) == ("w1", None, None)
    assert timeline_faults(after) == []
    assert await driver.store.attempts(job.job_id) == [
        Attempt(job.job_id, 1, 1, "w1", T0, T0 + 100, Outcome.SUCCEEDED, None)
    ]
    (row,) = await driver.store.outbox_find(job_id=job.job_id)
    assert (row.event_id, row.requester_id, row.body, row.status) == (
        "ev-1",
        "acme",
        '{"a": 1}',
        Delivery.PENDING,
    )
    assert (await driver.get(follow.job_id)).status is Status.QUEUED
    assert await driver.types(job.job_id) == ["queued", "running", "done"]


@pytest.mark.guarantee("S12")
async def test_a_follow_up_that_cannot_be_made_undoes_the_move(driver: StoreDriver) -> None:
    taken_job = new_job()
    await driver.enqueue(taken_job)
    job = await driver.claim_one()
    before = await snapshot(driver, job.job_id)
    with pytest.raises(DuplicateJob):
        await driver.settle(commands.succeed(job, follow_ups=(new_job(), taken_job)))
    assert await snapshot(driver, job.job_id) == before
    await driver.done(job)


@pytest.mark.guarantee("S12")
async def test_a_retry_waits_and_keeps_its_error(driver: StoreDriver) -> None:
    job = await driver.running(max_attempts=2)
    await driver.settle(commands.retry(job, ERROR, delay_ms=5_000))
    after = await driver.get(job.job_id)
    assert (after.status, after.held, after.run_at) == (Status.QUEUED, HoldReason.DELAY, T0 + 5_000)
    assert (after.worker_id, after.attempt_count, after.error) == (None, 1, ERROR.json())
    driver.later(5_000)
    again = await driver.claim_one()
    assert (again.attempt_count, again.started_at, again.attempt_started_at) == (2, T0, T0 + 5_000)
    await driver.settle(commands.fail(again, ERROR, rand=0))
    dead = await driver.get(job.job_id)
    assert (dead.status, dead.error) == (Status.DEAD_LETTER, ERROR.json())
    first, second = await driver.store.attempts(job.job_id)
    assert (first.outcome, first.error, first.attempt) == (Outcome.RETRIED, ERROR.json(), 1)
    assert (second.outcome, second.claim_version, second.attempt) == (Outcome.DEAD_LETTERED, 2, 2)
    assert await driver.types(job.job_id) == ["queued", "running", "retrying", "running", "error"]


@pytest.mark.guarantee("S12")
async def test_success_after_a_retry_clears_the_error(driver: StoreDriver) -> None:
    job = await driver.running()
    await driver.settle(commands.retry(job, ERROR, delay_ms=0))
    again = await driver.claim_one()
    await driver.done(again, "7")
    after = await driver.get(job.job_id)
    assert (after.error, after.result) == (None, "7")


@pytest.mark.guarantee("S12")
async def test_a_release_costs_no_attempt(driver: StoreDriver) -> None:
    job = await driver.running()
    await driver.settle(commands.release(job))
    assert (await driver.get(job.job_id)).attempt_count == 0
    (attempt,) = await driver.store.attempts(job.job_id)
    assert attempt.outcome is Outcome.RELEASED
    unstarted_job = await driver.claim_one(start=False)
    await driver.settle(commands.release(unstarted_job))
    after = await driver.get(job.job_id)
    assert (after.attempt_count, after.claim_version) == (0, 2)
    assert len(await driver.store.attempts(job.job_id)) == 1


@pytest.mark.guarantee("S12")
async def test_checkpoints_outlive_the_attempt(driver: StoreDriver) -> None:
    job = await driver.running()
    await driver.settle(commands.checkpoint(job, "script", '{"n":1}'), commands.checkpoint(job, "voice", "2"))
    await driver.settle(commands.checkpoint(job, "voice", "3"))
    await driver.settle(commands.release(job))
    assert await driver.store.checkpoints(job.job_id) == {"script": '{"n":1}', "voice": "3"}


@pytest.mark.guarantee("S13")
async def test_events_have_no_gaps_under_concurrent_writers(driver: StoreDriver) -> None:
    job = await driver.running()

    async def write(n: int) -> None:
        for k in range(10):
            await driver.settle(commands.progress(job, n * 10 + k))

    await asyncio.gather(*(write(n) for n in range(8)))
    events = await driver.events(job.job_id)
    assert [e.seq for e in events] == list(range(1, 83))
    percents = [e.progress for e in events]
    assert percents == sorted(percents)


@pytest.mark.guarantee("S13", "S14")
async def test_times_never_fall_when_the_clock_steps_back(driver: StoreDriver) -> None:
    job = await driver.running()
    driver.now = T0 - 5_000
    await driver.settle(commands.advance(job, "s"))
    await driver.done(job)
    after = await driver.get(job.job_id)
    assert [e.ms for e in await driver.events(job.job_id)] == [T0] * 4
    assert (after.ended_at, after.updated_at) == (T0, T0)
    assert timeline_faults(after) == []


@pytest.mark.guarantee("S14")
async def test_progress_never_falls(driver: StoreDriver) -> None:
    job = await driver.running()
    await driver.settle(commands.progress(job, 40.25, "half way"))
    await driver.settle(commands.progress(job, 10))
    after = await driver.get(job.job_id)
    assert after.progress == 40.25
    assert [e.progress for e in await driver.events(job.job_id)] == [0, 0, 40.25, 40.25]
    await driver.settle(commands.retry(job, ERROR, delay_ms=0))
    again = await driver.claim_one()
    assert again.progress == 40.25
    await driver.settle(commands.progress(again._replace(progress=0.0), 5))
    assert (await driver.get(job.job_id)).progress == 40.25


@pytest.mark.guarantee("S16")
async def test_repeating_an_outcome_changes_nothing(driver: StoreDriver) -> None:
    job = await driver.running()
    await driver.done(job, "1")
    before = await snapshot(driver, job.job_id)
    driver.later(10)
    assert await driver.settle(commands.succeed(job, "2")) == [Settled.REPEATED]
    assert await driver.settle(commands.fail(job, JobError("fatal"), rand=0)) == [Settled.STALE]
    assert await snapshot(driver, job.job_id) == before


@pytest.mark.guarantee("S16")
async def test_repeating_a_retry_is_known_after_the_next_claim(driver: StoreDriver) -> None:
    job = await driver.running()
    retry = commands.retry(job, ERROR, delay_ms=0)
    await driver.settle(retry)
    await driver.claim_one()
    assert await driver.settle(retry) == [Settled.REPEATED]


@pytest.mark.guarantee("S11")
async def test_a_queued_job_is_cancelled_and_never_claimed(driver: StoreDriver) -> None:
    waiting, delayed_id = await driver.add(), await driver.add(delay_ms=10)
    for job_id in (waiting, delayed_id):
        await driver.settle(commands.request_cancel(await driver.get(job_id), "no"))
        job = await driver.get(job_id)
        assert (job.status, job.cancel_reason, job.ended_at) == (Status.CANCELED, "no", T0)
    driver.later(1_000)
    assert await driver.claim() == []
    assert await driver.store.promote(now=driver.now) == 0
    assert (await driver.store.counts())["default"] == {Status.CANCELED: 2}


@pytest.mark.guarantee("S11")
async def test_cancelling_and_claiming_race_to_one_winner(driver: StoreDriver) -> None:
    for _ in range(20):
        job = await driver.get(await driver.add())
        cancelled, jobs = await asyncio.gather(driver.settle(commands.cancel(job)), driver.claim())
        assert (cancelled == [Settled.APPLIED]) is (jobs == [])
        for running in jobs:
            await driver.done(running)


@pytest.mark.guarantee("S12")
async def test_an_operator_brings_a_dead_letter_back(driver: StoreDriver) -> None:
    job = await driver.running(max_attempts=1)
    await driver.settle(commands.fail(job, ERROR, rand=0))
    dead = await driver.get(job.job_id)
    driver.later(1_000)
    assert await driver.settle(commands.requeue(dead)) == [Settled.APPLIED]
    back = await driver.get(job.job_id)
    assert (back.status, back.ended_at, back.max_attempts, back.lease_losses) == (Status.QUEUED, None, 4, 0)
    again = await driver.claim_one()
    assert (again.attempt_count, again.claim_version) == (2, 2)
    await driver.done(again)


@pytest.mark.guarantee("S4", "S12")
async def test_a_job_cannot_come_back_beside_an_active_one_of_its_key(driver: StoreDriver) -> None:
    job = await driver.running(unique_key="u")
    await driver.settle(commands.fail(job, JobError("fatal"), rand=0))
    await driver.add(unique_key="u")
    dead = await driver.get(job.job_id)
    with pytest.raises(DuplicateJob):
        await driver.settle(commands.requeue(dead))
    assert await driver.get(job.job_id) == dead


@pytest.mark.guarantee("S12")
async def test_the_stores_agree_with_the_pure_kernel(driver: StoreDriver) -> None:
    job = await driver.running(concurrency_key="k", retry="euterpe", contract="euterpe")
    steps: list[Callable[[Job], Settlement]] = [
        lambda j: commands.advance(j, "fetching"),
        lambda j: commands.progress(j, 33.34, "m"),
        commands.refresh,
        lambda j: commands.fail(j, JobError("429"), rand=0.5),
    ]
    for make in steps:
        driver.later(7)
        settlement = make(job)
        assert await driver.settle(settlement) == [Settled.APPLIED]
        expected = apply.after_settlement(job, settlement, driver.now)
        job = await driver.get(job.job_id)
        assert job == expected


async def snapshot(driver: StoreDriver, job_id: str) -> tuple[object, ...]:
    """Return every stored field of one job."""
    return (
        await driver.get(job_id),
        await driver.events(job_id),
        await driver.store.attempts(job_id),
        await driver.store.checkpoints(job_id),
        await driver.store.outbox_find(job_id=job_id),
        await driver.store.counts(),
    )
