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
from tests.kit import Kit, new_job

NOBODY = "00000000-0000-0000-0000-00000000abcd"
CIPHER = "Y2lwaGVydGV4dA=="


def envelope(wrapped: str = "d3JhcHBlZA==", kek_id: str = "k1", version: int = 1) -> Envelope:
    return Envelope(version, CIPHER, wrapped, kek_id, 1)


async def of(kit: Kit, job_id: str) -> Credentials | None:
    (found,) = await kit.store.credentials([job_id])
    return found


async def one(kit: Kit, **fields: Any) -> Credentials:
    """The credentials of a job that has just been enqueued."""
    found = await of(kit, await kit.add(credentials=envelope(), **fields))
    assert found is not None
    return found


async def held(kit: Kit, **fields: Any) -> Job:
    return await kit.running(credentials=envelope(), **fields)


@pytest.mark.guarantee("S27")
async def test_credentials_are_written_with_their_job_and_read_by_its_id(kit: Kit) -> None:
    with_some, without = new_job(requester_id="acme", credentials=envelope()), new_job()
    await kit.enqueue(with_some, without)
    assert await kit.store.credentials([without.job_id, with_some.job_id, NOBODY, "nonsense"]) == [
        None,
        Credentials(with_some.job_id, "acme", envelope()),
        None,
        None,
    ]
    assert await kit.store.credentials([]) == []


@pytest.mark.guarantee("S27")
async def test_a_refused_batch_leaves_no_credentials(kit: Kit) -> None:
    first = new_job(credentials=envelope())
    await kit.enqueue(first)
    other = new_job(credentials=envelope())
    with pytest.raises(DuplicateJob):
        await kit.enqueue(other, first._replace(credentials=envelope("b3RoZXI=")))
    with pytest.raises(DependencyNotFound):
        await kit.enqueue(other, new_job(depends_on=(NOBODY,)))
    with pytest.raises(QueueFull):
        await kit.store.enqueue([other], depth_limit=1, now=kit.now)
    assert await of(kit, other.job_id) is None
    assert await of(kit, first.job_id) == Credentials(first.job_id, "", envelope())
    assert await kit.store.credential_keks() == {"k1": 1}


@pytest.mark.guarantee("S27")
async def test_a_key_that_finds_an_earlier_job_keeps_its_credentials(kit: Kit) -> None:
    key = Idempotency("k", "h")
    first = new_job(credentials=envelope(), idempotency=key)
    again = new_job(credentials=envelope("b3RoZXI="), idempotency=key)
    unique = new_job(credentials=envelope(), unique_key="u"), new_job(credentials=envelope(), unique_key="u")
    await kit.enqueue(first)
    await kit.enqueue(again)
    await kit.enqueue(*unique)
    kept = [await of(kit, new.job_id) for new in (first, again, *unique)]
    assert [c is not None for c in kept] == [True, False, True, False]
    assert kept[0] is not None
    assert kept[0].envelope == envelope()


@pytest.mark.guarantee("S27")
async def test_a_follow_up_has_its_own_credentials(kit: Kit) -> None:
    job = await kit.running()
    follow_up = new_job(credentials=envelope())
    await kit.settle(commands.succeed(job, follow_ups=(follow_up,)))
    assert await of(kit, follow_up.job_id) is not None


@pytest.mark.guarantee("S27")
async def test_no_other_verb_answers_with_credentials(kit: Kit) -> None:
    job = await held(kit, requester_id="acme")
    seen = [await kit.get(job.job_id), job, await kit.events(job.job_id), await kit.store.attempts(job.job_id)]
    seen += (await kit.store.find(JobQuery())).jobs
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
    kit: Kit, more: dict[str, Any]
) -> None:
    bystander = await one(kit, queue="other")
    for n, (end, kept) in enumerate(ENDS):
        job = await held(kit, queue=f"q{n}", **more)
        assert await kit.settle(end(job)) == [Settled.APPLIED]
        assert (await of(kit, job.job_id) is not None) is kept, end
    assert await of(kit, bystander.job_id) == bystander
    assert await kit.store.credential_keks() == {"k1": 1 + sum(kept for _, kept in ENDS)}


@pytest.mark.guarantee("S27")
async def test_a_batch_of_ends_forgets_the_credentials_of_each(kit: Kit) -> None:
    await kit.enqueue(*(new_job(credentials=envelope() if n % 2 else None) for n in range(6)))
    jobs = await kit.claim(limit=6)
    stale = jobs[1]._replace(claim_version=9)
    await kit.settle(*(commands.succeed(job) for job in [jobs[0], stale, *jobs[2:]]))
    assert [await of(kit, job.job_id) is not None for job in jobs] == [False, True, False, False, False, False]


@pytest.mark.guarantee("S27")
async def test_a_queued_job_that_is_canceled_forgets_its_credentials(kit: Kit) -> None:
    found = await one(kit)
    await kit.settle(commands.cancel(await kit.get(found.job_id)))
    assert await of(kit, found.job_id) is None


@pytest.mark.guarantee("S27")
async def test_a_failed_job_that_is_brought_back_still_has_its_credentials(kit: Kit) -> None:
    job = await held(kit)
    await kit.settle(failure(job))
    await kit.settle(commands.requeue(await kit.get(job.job_id)))
    again = await kit.claim_one()
    assert await of(kit, again.job_id) is not None
    await kit.done(again)
    assert await of(kit, again.job_id) is None


@pytest.mark.guarantee("S27", "S19")
@pytest.mark.parametrize("more", [{}, {"ttl_s": 1}])
async def test_prune_takes_credentials_with_their_job(kit: Kit, more: dict[str, Any]) -> None:
    job, bystander = await held(kit, **more), await one(kit)
    await kit.settle(failure(job))
    kit.later(2_000)
    assert await kit.store.prune(ended_before=kit.now, limit=10, now=kit.now) == 1
    assert await of(kit, job.job_id) is None
    assert await of(kit, bystander.job_id) == bystander
    assert await kit.store.credential_keks() == {"k1": 1}
    assert await kit.store.credentials_under("k1") == [bystander]


@pytest.mark.guarantee("S27")
async def test_a_deleted_job_takes_its_credentials_with_it(kit: Kit) -> None:
    job, bystander = await held(kit), await one(kit)
    await kit.settle(failure(job))
    assert await kit.store.delete([job.claim]) == 1
    assert await of(kit, job.job_id) is None
    assert await kit.store.credentials_under("k1") == [bystander]


@pytest.mark.guarantee("S28")
async def test_credentials_are_replaced_where_they_are_as_they_were_read(kit: Kit) -> None:
    was = await one(kit, requester_id="acme")
    second = was._replace(envelope=Envelope(2, "bmV3", "bmV3a2V5", "k2", 2))
    other_wrap = was._replace(envelope=envelope("b3RoZXI="))
    older = was._replace(envelope=envelope(version=7))
    gone = was._replace(job_id=NOBODY)
    changes = [(older, second), (other_wrap, second), (gone, second), (was, second), (was, second)]
    assert await kit.store.replace_credentials(changes[:3]) == [False, False, False]
    assert await of(kit, was.job_id) == was
    assert await kit.store.replace_credentials(changes) == [False, False, False, True, False]
    assert await of(kit, was.job_id) == second
    assert await kit.store.replace_credentials([(was, second)]) == [False]
    assert await of(kit, NOBODY) is None
    assert await kit.store.replace_credentials([]) == []


@pytest.mark.guarantee("S28")
async def test_of_many_writers_of_one_version_of_credentials_one_wins(kit: Kit) -> None:
    was = await one(kit)

    async def write(n: int) -> bool:
        becomes = was._replace(envelope=Envelope(2, CIPHER, f"{n:04}", "k2", 1))
        (done,) = await kit.store.replace_credentials([(was, becomes)])
        return done

    assert sum(await asyncio.gather(*(write(n) for n in range(20)))) == 1


@pytest.mark.guarantee("S28")
async def test_replacing_does_not_bring_back_what_is_gone(kit: Kit) -> None:
    job = await held(kit)
    was = await of(kit, job.job_id)
    assert was is not None
    await kit.done(job)
    assert await kit.store.replace_credentials([(was, was._replace(envelope=envelope("eA==", "k2", 2)))]) == [False]
    assert await of(kit, job.job_id) is None
    assert await kit.store.credential_keks() == {}


@pytest.mark.guarantee("S29")
async def test_credentials_are_listed_by_their_kek_in_order_of_job_id(kit: Kit) -> None:
    made = [new_job(credentials=envelope(kek_id="k1" if n % 3 else "arn:aws:kms:x:1:key/2")) for n in range(12)]
    await kit.enqueue(*reversed(made))
    mine = sorted(new.job_id for n, new in enumerate(made) if n % 3)
    seen: list[str] = []
    while page := await kit.store.credentials_under("k1", after=seen[-1] if seen else "", limit=3):
        assert all(c.envelope.storage_creds_kek_id == "k1" for c in page)
        seen += [c.job_id for c in page]
    assert seen == mine
    assert await kit.store.credential_keks() == {"k1": 8, "arn:aws:kms:x:1:key/2": 4}
    first = (await kit.store.credentials_under("k1", limit=1))[0]
    await kit.store.replace_credentials([(first, first._replace(envelope=envelope("eA==", "k2")))])
    assert [c.job_id for c in await kit.store.credentials_under("k1")] == mine[1:]
    assert [c.job_id for c in await kit.store.credentials_under("k2")] == mine[:1]
    assert await kit.store.credentials_under("nobody") == []
    assert await kit.store.credential_keks() == {"k1": 7, "k2": 1, "arn:aws:kms:x:1:key/2": 4}


async def test_a_job_with_credentials_lives_as_any_other(kit: Kit) -> None:
    job = await held(kit)
    await kit.settle(commands.progress(job, 50), commands.checkpoint(job, "a", "1"))
    await kit.settle(commands.refresh(job))
    assert (await kit.get(job.job_id)).refresh_count == 1
    await kit.done(job, "7")
    ended = await kit.get(job.job_id)
    assert (ended.status, ended.result) == (Status.SUCCEEDED, "7")
    assert await kit.types(job.job_id) == ["queued", "running", "progress", "checkpoint", "refreshed", "done"]
    assert [attempt.outcome for attempt in await kit.store.attempts(job.job_id)] == ["succeeded"]
