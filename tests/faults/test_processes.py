"""Several processes on one store: exclusive claims, kill -9, and a worker that comes back from the dead."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter

import pytest

from callsheet.engine import Engine, Housekeeping
from callsheet.engine.housekeeping import Chores
from callsheet.kernel import commands
from callsheet.kernel.job import Outcome, Status
from callsheet.store.protocol import ClaimRequest, JobQuery, Settled
from tests.faults.conftest import Spawn
from tests.store_driver import new_job
from tests.time_limits import within

DEEP = "CALLSHEET_DEEP" in os.environ
JOBS = 5_000 if DEEP else 600
# A healthy worker on a busy machine may lose its lease more often than three times.
PATIENT = '{"max_lease_losses":50,"lost_lease_backoff":{"table_ms":[0]}}'


async def until_ended(engine: Engine, count: int, *, within_s: float = 60) -> None:
    """Wait until so many jobs have succeeded."""
    async with asyncio.timeout(within_s):
        while (await engine.store.counts())["default"].get(Status.SUCCEEDED, 0) < count:
            await asyncio.sleep(0.02)


async def every_job_ended_once(engine: Engine, ids: list[str]) -> None:
    """One terminal event, one successful attempt, events without a gap, for each."""
    events = await engine.store.events(dict.fromkeys(ids, 0), 1000)
    ends = Counter(e.job_id for e in events if e.type == "done")
    assert ends == Counter(ids)
    for job_id in ids:
        numbers = [e.seq for e in events if e.job_id == job_id]
        assert numbers == list(range(1, len(numbers) + 1))


async def test_processes_share_jobs_without_overlap(engine: Engine, spawn: Spawn) -> None:
    workers = [spawn("drain", f"w{n}") for n in range(4)]
    ids = [a.job_id for a in await engine.enqueue([new_job() for _ in range(JOBS)])]
    await until_ended(engine, JOBS)
    told = [facts for worker in workers for facts in worker.stop()]
    assert Counter(f["done"] for f in told) == Counter(ids)
    assert {f["version"] for f in told} == {1}
    await every_job_ended_once(engine, ids)


async def test_a_killed_worker_loses_nothing(engine: Engine, spawn: Spawn) -> None:
    ids = [a.job_id for a in await engine.enqueue([new_job(max_attempts=50, retry=PATIENT) for _ in range(JOBS)])]
    async with Housekeeping(engine, Chores(sweep_s=0.1)):
        for n in range(4):
            victim = spawn("falter", f"victim{n}", lease_ms=500)
            victim.read()
            victim.kill()
        survivors = [spawn("drain", f"w{n}", lease_ms=2_000) for n in range(2)]
        await until_ended(engine, JOBS)
        for worker in survivors:
            worker.stop()
    await every_job_ended_once(engine, ids)
    jobs = (await engine.find(JobQuery(limit=JOBS))).jobs
    assert sum(job.lease_losses for job in jobs) >= 4 * 9  # all but the first of each victim's batch


async def test_a_killed_workers_job_is_back_within_lease_and_sweep(engine: Engine, spawn: Spawn) -> None:
    await engine.enqueue([new_job()])
    victim = spawn("hold", "victim", lease_ms=1_000)
    victim.read()
    victim.kill()
    async with asyncio.timeout(within(1.0 + 2.0)), Housekeeping(engine, Chores(sweep_s=0.2)):
        while not (jobs := await engine.claim(ClaimRequest("w2"))):
            await asyncio.sleep(0.01)
    assert jobs[0].claim_version == 2
    (first, _) = await engine.store.attempts(jobs[0].job_id)
    assert (first.worker_id, first.outcome) == ("victim", Outcome.LEASE_LOST)


@pytest.mark.parametrize("state", ["queued", "claimed", "ended"])
async def test_a_zombies_every_write_is_refused(engine: Engine, spawn: Spawn, state: str) -> None:
    await engine.enqueue([new_job()])
    zombie = spawn("hold", "zombie", lease_ms=300)
    job_id = zombie.read()["claimed"]
    zombie.signal(signal.SIGSTOP)
    keeping = Housekeeping(engine)
    while not await keeping.reap():
        await asyncio.sleep(0.05)
    if state != "queued":
        (job,) = await engine.claim(ClaimRequest("w2"))
        if state == "ended":
            await engine.settle([commands.succeed(job, "2")])
    before = await everything(engine, job_id)
    zombie.signal(signal.SIGCONT)
    zombie.write("go on")
    facts = zombie.read()
    assert set(facts["answers"].values()) == {Settled.STALE}
    assert facts["held"] is False
    assert await everything(engine, job_id) == before


async def test_reaper_and_workers_race_to_one_outcome(engine: Engine, spawn: Spawn) -> None:
    """Leases so short that healthy workers lose them all the time: still one outcome for each job."""
    impatient = '{"max_lease_losses":4,"lost_lease_backoff":{"table_ms":[0]}}'
    batch = [new_job(max_attempts=100, retry=impatient) for _ in range(JOBS // 3)]
    ids = [a.job_id for a in await engine.enqueue(batch)]
    workers = [spawn("dawdle", f"w{n}", lease_ms=15) for n in range(2)]
    keeping = Housekeeping(engine)
    async with asyncio.timeout(60):
        while (counts := (await engine.store.counts())["default"]).keys() & {Status.QUEUED, Status.RUNNING}:
            await keeping.sweep()
    assert sum(counts.values()) == len(ids)
    for worker in workers:
        worker.stop()
    events = await engine.store.events(dict.fromkeys(ids, 0), 10_000)
    ends = Counter(e.job_id for e in events if e.type in ("done", "error"))
    assert ends == Counter(ids)
    assert any(e.type == "lease_lost" for e in events)
    for job_id in ids:
        attempts = await engine.store.attempts(job_id)
        job = await engine.get(job_id)
        assert sum(a.outcome is Outcome.SUCCEEDED for a in attempts) == (job.status is Status.SUCCEEDED)
        assert sum(a.outcome is Outcome.LEASE_LOST for a in attempts) == job.lease_losses


async def everything(engine: Engine, job_id: str) -> tuple[object, ...]:
    store = engine.store
    return (
        await engine.get(job_id),
        await store.events({job_id: 0}, 100),
        await store.attempts(job_id),
        await store.checkpoints(job_id),
        await store.outbox_find(),
    )
