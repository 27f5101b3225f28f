from __future__ import annotations

import pytest

from callsheet.engine import Engine
from callsheet.engine.ids import new_id
from callsheet.kernel import commands
from callsheet.kernel.errors import IllegalMove, InvalidJob, JobNotFound, StaleClaim
from callsheet.kernel.job import NewJob, Status
from callsheet.kernel.new_jobs import IS_UUID
from callsheet.kernel.retry import JobError
from callsheet.store.protocol import ClaimRequest, JobQuery, Settled
from tests.store_driver import new_job


def test_new_ids_are_uuids_that_rise_with_time() -> None:
    ids = [new_id() for _ in range(1000)]
    assert all(IS_UUID(i) and i[14] == "7" and i[19] in "89ab" for i in ids)
    assert len(set(ids)) == 1000
    assert ids[0][:8] <= ids[-1][:8]


async def test_a_bad_job_never_reaches_the_store(engine: Engine) -> None:
    good = new_job()
    with pytest.raises(InvalidJob):
        await engine.enqueue([good, NewJob(job_id="x", kind="k")])
    assert (await engine.find(JobQuery())).jobs == []


async def test_a_job_lives_through_the_engine(engine: Engine) -> None:
    (receipt,) = await engine.enqueue([new_job(requester_id="me")])
    (job,) = await engine.claim(ClaimRequest("w"))
    (beat,) = await engine.heartbeat([job.claim], lease_ms=1000)
    assert beat.held
    job = await engine.settle_one(job, commands.advance(job, "s"))
    assert job.stage == "s"
    job = await engine.settle_one(job, commands.succeed(job, "42"))
    assert (await engine.get(receipt.job_id)).result == "42"
    with pytest.raises(StaleClaim):
        await engine.settle_one(job, commands.progress(job._replace(status=Status.RUNNING, attempt_started_at=1), 5))


async def test_a_stranger_does_not_see_a_job(engine: Engine) -> None:
    (receipt,) = await engine.enqueue([new_job(requester_id="me")])
    assert (await engine.get(receipt.job_id, requester_id="me")).job_id == receipt.job_id
    for stranger in ("you", ""):
        with pytest.raises(JobNotFound):
            await engine.get(receipt.job_id, requester_id=stranger)
        with pytest.raises(JobNotFound):
            await engine.cancel(receipt.job_id, requester_id=stranger)
    for unknown in (new_id(), "", "../etc", "job"):
        with pytest.raises(JobNotFound):
            await engine.get(unknown)


async def test_cancel_ends_a_waiting_job_and_flags_a_running_one(engine: Engine) -> None:
    waiting, running = new_job(queue="w"), new_job()
    await engine.enqueue([waiting, running])
    (job,) = await engine.claim(ClaimRequest("w"))
    assert (await engine.cancel(waiting.job_id, "no")).status is Status.CANCELED
    flagged_job = await engine.cancel(running.job_id, "no")
    assert (flagged_job.status, flagged_job.cancel_reason) == (Status.RUNNING, "no")
    assert (await engine.heartbeat([job.claim], lease_ms=1000))[0].cancel_requested
    with pytest.raises(IllegalMove):
        await engine.cancel(waiting.job_id)


async def test_requeue_brings_a_failed_job_back(engine: Engine) -> None:
    await engine.enqueue([new_job()])
    (job,) = await engine.claim(ClaimRequest("w"))
    with pytest.raises(IllegalMove):
        await engine.requeue(job.job_id)
    await engine.settle_one(job, commands.cancel(job))
    assert (await engine.requeue(job.job_id)).status is Status.QUEUED


async def test_a_cancel_that_the_worker_did_not_see_is_not_lost(engine: Engine) -> None:
    await engine.enqueue([new_job() for _ in range(3)])
    jobs = await engine.claim(ClaimRequest("w", limit=3))
    for job in jobs:
        await engine.cancel(job.job_id, "enough")
    unaware = [
        commands.retry(jobs[0], JobError("x"), delay_ms=3_600_000),
        commands.release(jobs[1]),
        commands.lose_lease(jobs[2], rand=0)._replace(expired_only=False),
    ]
    assert await engine.settle(unaware) == [Settled.APPLIED] * 3
    for job in jobs:
        after = await engine.get(job.job_id)
        assert (after.status, after.cancel_reason) == (Status.CANCELED, "enough")
