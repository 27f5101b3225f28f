from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from callsheet.engine import Engine, Housekeeping, housekeeping
from callsheet.engine.clock import ClockWatch, Sight
from callsheet.engine.housekeeping import Chores
from callsheet.engine.schedules import Schedule, delete_schedule, fire_due, put_schedule, schedules
from callsheet.engine.silent_workers import BEGUN_JOBS, LISTS_KEPT_MS, BegunJobs, needs_listing
from callsheet.kernel import commands
from callsheet.kernel.errors import InvalidInput
from callsheet.kernel.job import Status
from callsheet.kernel.retry import JobError
from callsheet.store.protocol import ClaimRequest, Document, JobQuery, Settled
from tests.running_worker import until
from tests.store_driver import T0, new_job

REMOTE = f"w~{'0f' * 32}"  # as the control plane names the owner of a claim


async def test_one_sweep_does_all_chores(engine: Engine) -> None:
    keeping = Housekeeping(engine, Chores(retention_ms=1_000))
    parent, child, delayed_job, lost_jobs, old = [new_job(queue=f"q{n}") for n in range(5)]
    child = child._replace(depends_on=(parent.job_id,))
    delayed_job = delayed_job._replace(delay_ms=500)
    await engine.enqueue([parent, child, delayed_job, lost_jobs, old], now=T0)
    by_queue = {
        new.queue: (await engine.claim(ClaimRequest("w", (new.queue,), lease_ms=100), now=T0))[0]
        for new in (parent, lost_jobs, old)
    }
    await engine.settle([commands.fail(by_queue["q0"], JobError("fatal"), rand=0)], now=T0 + 4_900)
    await engine.settle([commands.succeed(by_queue["q4"])], now=T0)
    await put_schedule(engine.store, Schedule("hourly", "0 * * * *", "report"), now=T0 - 3_600_000)
    assert await keeping.sweep(now=T0 + 5_000) == (1, 1, 1, 1, 1)
    assert await keeping.sweep(now=T0 + 5_000) == (0, 0, 0, 0, 0)
    cancelled_job = await engine.get(child.job_id)
    assert cancelled_job.status is Status.CANCELED
    assert parent.job_id in (cancelled_job.cancel_reason or "")
    assert (await engine.get(lost_jobs.job_id)).lease_losses == 1


async def test_after_an_outage_living_workers_come_before_the_reaper(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed_s, sweeps, prune = 0.0, 0, engine.store.prune
    goes_away = asyncio.Event()

    class Clock(ClockWatch):
        async def look(self) -> Sight:
            nonlocal passed_s
            if goes_away.is_set():
                goes_away.clear()
                passed_s += 60.0  # until this look is answered
            return await super().look()

    async def counted(**options: Any) -> int:
        nonlocal sweeps
        sweeps += 1
        return await prune(**options)

    async def sweep_twice() -> None:  # the first of them may have begun before what the test did
        since = sweeps
        await until(lambda: sweeps >= since + 2)

    monkeypatch.setattr(housekeeping, "time", SimpleNamespace(monotonic=lambda: passed_s))
    monkeypatch.setattr(engine.store, "prune", counted)
    async with Housekeeping(engine, Chores(sweep_s=0.01), Clock(engine.store)):
        await sweep_twice()
        goes_away.set()
        await sweep_twice()
        await engine.enqueue([new_job()])
        (job,) = await engine.claim(ClaimRequest("w", lease_ms=1))
        await until(lambda: engine.store.with_expired_lease(1))
        await sweep_twice()
        assert (await engine.get(job.job_id)).status is Status.RUNNING
        passed_s += housekeeping.RESPITE_S
        await until(lambda: _is_back(engine, job.job_id))


async def _is_back(engine: Engine, job_id: str) -> bool:
    return (await engine.get(job_id)).status is Status.QUEUED


async def test_of_jobs_that_were_claimed_ahead_those_that_were_listed_as_begun_count(engine: Engine) -> None:
    begun_job = BegunJobs(engine.store, "w")
    await engine.enqueue([new_job(max_attempts=1) for _ in range(3)], now=T0)
    first, second, third = await engine.claim(ClaimRequest(begun_job.owner, limit=3, lease_ms=100), now=T0)
    await begun_job.write([first.job_id])
    await begun_job.write([second.job_id])  # the first has ended since, or so the worker says
    assert await Housekeeping(engine).reap(now=T0 + 200) == 3
    jobs = [await engine.get(job.job_id) for job in (first, second, third)]
    assert [(job.status.value, job.attempt_count, job.lease_losses) for job in jobs] == [
        ("queued", 0, 0),
        ("dead_letter", 1, 1),
        ("queued", 0, 0),
    ]
    assert [needs_listing(job) for job in jobs] == [True, True, True]


async def test_a_job_that_was_lost_early_and_then_with_its_worker_is_listed_from_then_on(engine: Engine) -> None:
    """Otherwise a killing job would survive every second time."""
    keeping = Housekeeping(engine)
    await engine.enqueue([new_job(max_attempts=5)], now=T0)
    await engine.claim(ClaimRequest(BegunJobs(engine.store, "w").owner, lease_ms=100), now=T0)
    await keeping.reap(now=T0 + 200)
    begun_job = BegunJobs(engine.store, "v")
    (job,) = await engine.claim(ClaimRequest(begun_job.owner, lease_ms=100), now=T0 + 300)
    await begun_job.write([job.job_id])
    await keeping.reap(now=T0 + 500)
    again = await engine.get(job.job_id)
    assert (again.status, again.lease_losses) == (Status.QUEUED, 1)
    assert needs_listing(again)


async def test_what_a_worker_without_a_list_had_claimed_ahead_has_not_begun(engine: Engine) -> None:
    await engine.enqueue([new_job(max_attempts=1)], now=T0)
    (job,) = await engine.claim(ClaimRequest(BegunJobs(engine.store, "w").owner, lease_ms=100), now=T0)
    assert await Housekeeping(engine).reap(now=T0 + 200) == 1
    assert (await engine.get(job.job_id)).status is Status.QUEUED


@pytest.mark.parametrize(("owner", "two_beats_ms"), [("w", 20_000), (REMOTE, 8_000)], ids=["beside", "remote"])
async def test_a_cancelled_job_of_a_silent_worker_ends_after_two_beats(
    engine: Engine, owner: str, two_beats_ms: int
) -> None:
    await engine.enqueue([new_job()], now=T0)
    (job,) = await engine.claim(ClaimRequest(owner, lease_ms=30_000), now=T0)
    await engine.cancel(job.job_id, "enough", now=T0 + 100)
    await engine.cancel(job.job_id, "at once", now=T0 + 200)  # asked again: it takes no less and no more
    await Housekeeping(engine).sweep(now=T0 + two_beats_ms)
    assert (await engine.get(job.job_id)).status is Status.RUNNING
    await Housekeeping(engine).sweep(now=T0 + two_beats_ms + 1)
    ended_job = await engine.get(job.job_id)
    assert (ended_job.status, ended_job.cancel_reason) == (Status.CANCELED, "at once")
    assert await engine.settle([commands.succeed(job)], now=T0 + two_beats_ms + 2) == [Settled.STALE]


async def test_a_claim_over_http_that_nothing_was_heard_of_has_not_begun(engine: Engine) -> None:
    await engine.enqueue([new_job(max_attempts=2)], now=T0)
    keeping, results = Housekeeping(engine), []
    for at in range(T0, T0 + 200_000, 50_000):
        (job,) = await engine.claim(ClaimRequest(REMOTE, lease_ms=10_000), now=at)
        assert await keeping.reap(now=at + 10_001) == 1
        lost_job = await engine.get(job.job_id)
        results.append((lost_job.status.value, lost_job.attempt_count, lost_job.lease_losses))
    # Whether an answer was lost or the job kills its workers is not known: it is the latter every second time.
    assert results == [("queued", 0, 0), ("queued", 1, 1), ("queued", 1, 1), ("dead_letter", 2, 2)]


@pytest.mark.parametrize("word", ["a heartbeat", "a move", "the claim of a worker beside the store"])
async def test_a_claim_that_was_confirmed_counts_when_it_is_lost(engine: Engine, word: str) -> None:
    await engine.enqueue([new_job(max_attempts=2)], now=T0)
    owner = "w" if word.startswith("the claim") else REMOTE
    (job,) = await engine.claim(ClaimRequest(owner, lease_ms=10_000), now=T0)
    if word == "a heartbeat":
        await engine.heartbeat([job.claim], lease_ms=10_000, now=T0 + 1)
    elif word == "a move":
        await engine.settle([commands.progress(job, 1)], now=T0 + 1)
    assert await Housekeeping(engine).reap(now=T0 + 10_002) == 1
    lost_job = await engine.get(job.job_id)
    assert (lost_job.attempt_count, lost_job.lease_losses) == (1, 1)


async def test_lists_of_workers_that_died_long_ago_are_removed(engine: Engine) -> None:
    old = {"at": await engine.store.now() - LISTS_KEPT_MS - 1, "jobs": []}
    await engine.store.put_document(Document(BEGUN_JOBS, "old~+1", json.dumps(old), 0))
    mine = BegunJobs(engine.store, "w")
    await mine.write(["a"])
    assert [document.id for document in await engine.store.documents(BEGUN_JOBS)] == [mine.owner]
    await mine.remove()
    assert await engine.store.documents(BEGUN_JOBS) == []


async def test_a_chain_behind_a_failure_is_cancelled_to_its_end(engine: Engine) -> None:
    chain = [new_job()]
    for _ in range(10):
        chain.append(new_job(depends_on=(chain[-1].job_id,)))
    await engine.enqueue(chain)
    (job,) = await engine.claim(ClaimRequest("w"))
    await engine.settle([commands.fail(job, JobError("fatal"), rand=0)])
    await Housekeeping(engine).sweep()
    assert (await engine.store.counts())["default"] == {Status.FAILED: 1, Status.CANCELED: 10}


async def test_many_housekeepers_do_each_chore_once(url: str) -> None:
    engines = [Engine.from_url(url) for _ in range(4)]
    await engines[0].store.migrate()
    for engine in engines:
        await engine.store.open()
    first = engines[0]
    await first.enqueue([new_job() for _ in range(50)], now=T0)
    await first.claim(ClaimRequest("w", limit=50, lease_ms=10), now=T0)
    await put_schedule(first.store, Schedule("s", "* * * * *", "tick"), now=T0)
    late = T0 + 61_000
    swept = await asyncio.gather(*(Housekeeping(e).sweep(now=late) for e in engines for _ in range(3)))
    assert sum(s.reaped for s in swept) == 50
    assert sum(s.fired for s in swept) == 1
    jobs = (await first.find(JobQuery(limit=100))).jobs
    assert sum(job.kind == "tick" for job in jobs) == 1
    assert {job.lease_losses for job in jobs if job.kind != "tick"} == {1}
    for engine in engines:
        await engine.store.close()


async def test_a_slot_fires_once_and_missed_slots_fire_once(engine: Engine) -> None:
    noon = int(datetime(2026, 3, 1, 12, 0, tzinfo=UTC).timestamp() * 1000)
    await put_schedule(engine.store, Schedule("s", "*/5 * * * *", "tick", '{"a":1}', "q", 3, "me"), now=noon)
    assert await fire_due(engine.store, now=noon + 299_999) == 0
    assert await fire_due(engine.store, now=noon + 300_000) == 1
    assert await fire_due(engine.store, now=noon + 300_000) == 0
    assert await fire_due(engine.store, now=noon + 3_600_000) == 1
    jobs = (await engine.find(JobQuery(requester_id="me"))).jobs
    assert [(j.kind, j.payload, j.queue, j.priority) for j in jobs] == [("tick", '{"a":1}', "q", 3)] * 2
    ((_, slot),) = await schedules(engine.store)
    assert slot == noon + 3_900_000
    assert await delete_schedule(engine.store, "s")
    assert await fire_due(engine.store, now=noon + 10**9) == 0


async def test_a_schedule_keeps_to_its_time_zone(engine: Engine) -> None:
    before = int(datetime(2026, 3, 28, 12, 0, tzinfo=UTC).timestamp() * 1000)
    berlin = Schedule("s", "30 9 * * *", "tick", timezone="Europe/Berlin")
    first = berlin.next_slot(before)
    assert datetime.fromtimestamp(first / 1000, UTC) == datetime(2026, 3, 29, 7, 30, tzinfo=UTC)
    assert datetime.fromtimestamp(berlin.next_slot(before - 86_400_000) / 1000, UTC).hour == 8


@pytest.mark.parametrize("bad", [Schedule("s", "nonsense", "k"), Schedule("s", "* * * * *", "k", timezone="Mars/Base")])
async def test_a_bad_schedule_is_refused(engine: Engine, bad: Schedule) -> None:
    with pytest.raises(InvalidInput):
        await put_schedule(engine.store, bad)
    assert await schedules(engine.store) == []


async def test_housekeeping_runs_and_stops(engine: Engine) -> None:
    await engine.enqueue([new_job(delay_ms=20)])
    async with Housekeeping(engine, Chores(sweep_s=0.01)) as keeping:
        (job,) = (await engine.find(JobQuery())).jobs
        while job.held is not None:
            await asyncio.sleep(0.01)
            job = await engine.get(job.job_id)
        keeping.stop()
        keeping.stop()


async def test_one_bad_schedule_does_not_stop_the_others(engine: Engine) -> None:
    await put_schedule(engine.store, Schedule("z", "* * * * *", "tick"), now=T0)
    await engine.store.put_document(Document("schedule", "a", '{"next_slot":0,"name":"a","cron":"?","kind":"k"}', 0))
    await engine.store.put_document(Document("schedule", "b", "[]", 0))
    newer = '{"next_slot":0,"name":"c","cron":"* * * * *","kind":"k","a_field_of_tomorrow":1}'
    await engine.store.put_document(Document("schedule", "c", newer, 0))
    assert await fire_due(engine.store, now=T0 + 60_000) == 2
    assert (await Housekeeping(engine).sweep(now=T0 + 60_001)).reaped == 0


async def test_an_hour_that_comes_twice_has_no_slot_in_the_past() -> None:
    autumn = int(datetime(2025, 10, 26, 1, 10, tzinfo=UTC).timestamp() * 1000)
    assert Schedule("s", "30 2 * * *", "k", timezone="Europe/Berlin").next_slot(autumn) > autumn
