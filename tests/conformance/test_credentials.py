from __future__ import annotations

import asyncio
from typing import Any

import pytest

from callsheet.kernel import commands
from callsheet.kernel.errors import DependencyNotFound, DuplicateJob, QueueFull
from callsheet.kernel.job import Credentials, Envelope, Idempotency, Job, Status
from callsheet.kernel.retry import JobError
from callsheet.kernel.settlement import Settlement
from callsheet.store.protocol import JobQuery, Settled
from tests.store_driver import StoreDriver, new_job

NOBODY = "00000000-0000-0000-0000-00000000abcd"
CIPHER = "Y2lwaGVydGV4dA=="


def envelope(wrapped: str = "d3JhcHBlZA==", kek_id: str = "k1", version: int = 1) -> Envelope:
    return Envelope(version, CIPHER, wrapped, kek_id, 1)


async def of(driver: StoreDriver, job_id: str) -> Credentials | None:
    (stored_credentials,) = await driver.store.credentials([job_id])
    return stored_credentials


async def one(driver: StoreDriver, **fields: Any) -> Credentials:
    """Enqueue a job and return its credentials."""
    result = await of(driver, await driver.add(credentials=envelope(), **fields))
    assert result is not None
    return result


async def held(driver: StoreDriver, **fields: Any) -> Job:
    return await driver.running(credentials=envelope(), **fields)


@pytest.mark.guarantee("S27")
async def test_credentials_are_written_with_their_job_and_read_by_its_id(driver: StoreDriver) -> None:
    with_some, without = new_job(requester_id="acme", credentials=envelope()), new_job()
    await driver.enqueue(with_some, without)
    assert await driver.store.credentials([without.job_id, with_some.job_id, NOBODY, "nonsense"]) == [
        None,
        Credentials(with_some.job_id, "acme", envelope()),
        None,
        None,
    ]
    assert await driver.store.credentials([]) == []


@pytest.mark.guarantee("S27")
async def test_a_refused_batch_leaves_no_credentials(driver: StoreDriver) -> None:
    first = new_job(credentials=envelope())
    await driver.enqueue(first)
    other = new_job(credentials=envelope())
    with pytest.raises(DuplicateJob):
        await driver.enqueue(other, first._replace(credentials=envelope("b3RoZXI=")))
    with pytest.raises(DependencyNotFound):
        await driver.enqueue(other, new_job(depends_on=(NOBODY,)))
    with pytest.raises(QueueFull):
        await driver.store.enqueue([other], depth_limit=1, now=driver.now)
    assert await of(driver, other.job_id) is None
    assert await of(driver, first.job_id) == Credentials(first.job_id, "", envelope())
    assert await driver.store.credential_keks() == {"k1": 1}


@pytest.mark.guarantee("S27")
async def test_a_key_that_finds_an_earlier_job_keeps_its_credentials(driver: StoreDriver) -> None:
    key = Idempotency("k", "h")
    first = new_job(credentials=envelope(), idempotency=key)
    again = new_job(credentials=envelope("b3RoZXI="), idempotency=key)
    unique = new_job(credentials=envelope(), unique_key="u"), new_job(credentials=envelope(), unique_key="u")
    await driver.enqueue(first)
    await driver.enqueue(again)
    await driver.enqueue(*unique)
    kept_rows = [await of(driver, new.job_id) for new in (first, again, *unique)]
    assert [c is not None for c in kept_rows] == [True, False, True, False]
    assert kept_rows[0] is not None
    assert kept_rows[0].envelope == envelope()


@pytest.mark.guarantee("S27")
async def test_a_follow_up_has_its_own_credentials(driver: StoreDriver) -> None:
    job = await driver.running()
    follow_up = new_job(credentials=envelope())
    await driver.settle(commands.succeed(job, follow_ups=(follow_up,)))
    assert await of(driver, follow_up.job_id) is not None


@pytest.mark.guarantee("S27")
async def test_no_other_verb_answers_with_credentials(driver: StoreDriver) -> None:
    job = await held(driver, requester_id="acme")
    seen = [await driver.get(job.job_id), job, await driver.events(job.job_id), await driver.store.attempts(job.job_id)]
    seen += (await driver.store.find(JobQuery())).jobs
    assert CIPHER not in repr(seen)


def success(job: Job) -> Settlement:
    return commands.succeed(job)


def failure(job: Job) -> Settlement:
    return commands.fail(job, JobError("fatal", retryable=False), rand=0)


def burial(job: Job) -> Settlement:
    return commands.dead_letter(job, JobError("x"))


def retry(job: Job) -> Settlement:
    return commands.retry(job, JobError("x"), delay_ms=0)


ENDS = [(success, False), (commands.cancel, False), (failure, True), (burial, True), (retry, True)]


@pytest.mark.guarantee("S27")
@pytest.mark.parametrize("more", [{}, {"concurrency_key": "k"}, {"ttl_s": 60}])
async def test_success_and_cancellation_forget_credentials_and_a_failure_keeps_them(
    driver: StoreDriver, more: dict[str, Any]
) -> None:
    bystander = await one(driver, queue="other")
    for n, (end, kept) in enumerate(ENDS):
        job = await held(driver, queue=f"q{n}", **more)
        assert await driver.settle(end(job)) == [Settled.APPLIED]
        assert (await of(driver, job.job_id) is not None) is kept, end
    assert await of(driver, bystander.job_id) == bystander
    assert await driver.store.credential_keks() == {"k1": 1 + sum(kept for _, kept in ENDS)}


@pytest.mark.guarantee("S27")
async def test_a_batch_of_ends_forgets_the_credentials_of_each(driver: StoreDriver) -> None:
    await driver.enqueue(*(new_job(credentials=envelope() if n % 2 else None) for n in range(6)))
    jobs = await driver.claim(limit=6)
    stale = jobs[1]._replace(claim_version=9)
    await driver.settle(*(commands.succeed(job) for job in [jobs[0], stale, *jobs[2:]]))
    assert [await of(driver, job.job_id) is not None for job in jobs] == [False, True, False, False, False, False]


@pytest.mark.guarantee("S27")
async def test_a_queued_job_that_is_canceled_forgets_its_credentials(driver: StoreDriver) -> None:
    result = await one(driver)
    await driver.settle(commands.cancel(await driver.get(result.job_id)))
    assert await of(driver, result.job_id) is None


@pytest.mark.guarantee("S27")
async def test_a_failed_job_that_is_brought_back_still_has_its_credentials(driver: StoreDriver) -> None:
    job = await held(driver)
    await driver.settle(failure(job))
    await driver.settle(commands.requeue(await driver.get(job.job_id)))
    again = await driver.claim_one()
    assert await of(driver, again.job_id) is not None
    await driver.done(again)
    assert await of(driver, again.job_id) is None


@pytest.mark.guarantee("S27", "S19")
@pytest.mark.parametrize("more", [{}, {"ttl_s": 1}])
async def test_prune_takes_credentials_with_their_job(driver: StoreDriver, more: dict[str, Any]) -> None:
    job, bystander = await held(driver, **more), await one(driver)
    await driver.settle(failure(job))
    driver.later(2_000)
    assert await driver.store.prune(ended_before=driver.now, limit=10, now=driver.now) == 1
    assert await of(driver, job.job_id) is None
    assert await of(driver, bystander.job_id) == bystander
    assert await driver.store.credential_keks() == {"k1": 1}
    assert await driver.store.credentials_under("k1") == [bystander]


@pytest.mark.guarantee("S27")
async def test_a_deleted_job_takes_its_credentials_with_it(driver: StoreDriver) -> None:
    job, bystander = await held(driver), await one(driver)
    await driver.settle(failure(job))
    assert await driver.store.delete([job.claim]) == 1
    assert await of(driver, job.job_id) is None
    assert await driver.store.credentials_under("k1") == [bystander]


@pytest.mark.guarantee("S28")
async def test_credentials_are_replaced_where_they_are_as_they_were_read(driver: StoreDriver) -> None:
    was = await one(driver, requester_id="acme")
    second = was._replace(envelope=Envelope(2, "bmV3", "bmV3a2V5", "k2", 2))
    other_wrap = was._replace(envelope=envelope("b3RoZXI="))
    older = was._replace(envelope=envelope(version=7))
    gone_job = was._replace(job_id=NOBODY)
    changes = [(older, second), (other_wrap, second), (gone_job, second), (was, second), (was, second)]
    assert await driver.store.replace_credentials(changes[:3]) == [False, False, False]
    assert await of(driver, was.job_id) == was
    assert await driver.store.replace_credentials(changes) == [False, False, False, True, False]
    assert await of(driver, was.job_id) == second
    assert await driver.store.replace_credentials([(was, second)]) == [False]
    assert await of(driver, NOBODY) is None
    assert await driver.store.replace_credentials([]) == []


@pytest.mark.guarantee("S28")
async def test_of_many_writers_of_one_version_of_credentials_one_wins(driver: StoreDriver) -> None:
    was = await one(driver)

    async def write(n: int) -> bool:
        becomes = was._replace(envelope=Envelope(2, CIPHER, f"{n:04}", "k2", 1))
        (replacement,) = await driver.store.replace_credentials([(was, becomes)])
        return replacement

    assert sum(await asyncio.gather(*(write(n) for n in range(20)))) == 1


@pytest.mark.guarantee("S28")
async def test_replacing_does_not_bring_back_what_is_gone(driver: StoreDriver) -> None:
    job = await held(driver)
    was = await of(driver, job.job_id)
    assert was is not None
    await driver.done(job)
    assert await driver.store.replace_credentials([(was, was._replace(envelope=envelope("eA==", "k2", 2)))]) == [False]
    assert await of(driver, job.job_id) is None
    assert await driver.store.credential_keks() == {}


@pytest.mark.guarantee("S29")
async def test_credentials_are_listed_by_their_kek_in_order_of_job_id(driver: StoreDriver) -> None:
    new_jobs = [new_job(credentials=envelope(kek_id="k1" if n % 3 else "arn:aws:kms:x:1:key/2")) for n in range(12)]
    await driver.enqueue(*reversed(new_jobs))
    mine = sorted(new.job_id for n, new in enumerate(new_jobs) if n % 3)
    seen: list[str] = []
    while page := await driver.store.credentials_under("k1", after=seen[-1] if seen else "", limit=3):
        assert all(c.envelope.storage_creds_kek_id == "k1" for c in page)
        seen += [c.job_id for c in page]
    assert seen == mine
    assert await driver.store.credential_keks() == {"k1": 8, "arn:aws:kms:x:1:key/2": 4}
    first = (await driver.store.credentials_under("k1", limit=1))[0]
    await driver.store.replace_credentials([(first, first._replace(envelope=envelope("eA==", "k2")))])
    assert [c.job_id for c in await driver.store.credentials_under("k1")] == mine[1:]
    assert [c.job_id for c in await driver.store.credentials_under("k2")] == mine[:1]
    assert await driver.store.credentials_under("nobody") == []
    assert await driver.store.credential_keks() == {"k1": 7, "k2": 1, "arn:aws:kms:x:1:key/2": 4}


async def test_a_job_with_credentials_lives_as_any_other(driver: StoreDriver) -> None:
    job = await held(driver)
    await driver.settle(commands.progress(job, 50), commands.checkpoint(job, "a", "1"))
    await driver.settle(commands.refresh(job))
    assert (await driver.get(job.job_id)).refresh_count == 1
    await driver.done(job, "7")
    ended_job = await driver.get(job.job_id)
    assert (ended_job.status, ended_job.result) == (Status.SUCCEEDED, "7")
    assert await driver.types(job.job_id) == ["queued", "running", "progress", "checkpoint", "refreshed", "done"]
    assert [attempt.outcome for attempt in await driver.store.attempts(job.job_id)] == ["succeeded"]
