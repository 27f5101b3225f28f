from __future__ import annotations

import asyncio
from typing import Any

import pytest

from callsheet.kernel import commands
from callsheet.kernel.errors import DependencyNotFound, DuplicateJob, IdempotencyConflict, QueueFull
from callsheet.kernel.job import HoldReason, Idempotency, OnDependencyFailure, Status
from callsheet.kernel.new_jobs import max_attempts_of
from callsheet.store.protocol import ClaimRequest, JobQuery
from tests.store_driver import T0, StoreDriver, new_job


@pytest.mark.guarantee("S2")
async def test_a_new_job_is_stored_whole(driver: StoreDriver) -> None:
    new = new_job(
        "ocr",
        payload='{"a":"ü\\u2028"}',
        queue="media",
        priority=7,
        requester_id="acme",
        contract="aura",
        max_attempts=9,
        retry="cortana",
        unique_key="u",
        ttl_s=3600,
        correlation_id="c-1",
    )
    (answer,) = await driver.enqueue(new)
    assert (answer.job_id, answer.created) == (new.job_id, True)
    job = await driver.get(new.job_id)
    for name in ("kind", "payload", "queue", "priority", "requester_id", "contract", "max_attempts", "retry"):
        assert getattr(job, name) == getattr(new, name), name
    assert (job.unique_key, job.ttl_s, job.correlation_id) == ("u", 3600, "c-1")
    assert (job.status, job.held, job.claim_version, job.attempt_count) == (Status.QUEUED, None, 0, 0)
    assert (job.created_at, job.updated_at, job.run_at, job.event_ms, job.event_seq) == (T0, T0, T0, T0, 1)
    assert (job.started_at, job.ended_at, job.worker_id, job.result, job.error) == (None,) * 5


OTHERS: list[dict[str, Any]] = [
    {},
    {"kind": "ocr"},
    {"queue": "other"},
    {"priority": -7},
    {"requester_id": "beta"},
    {"contract": "cortana"},
    {"max_attempts": 2},
    {"retry": "cortana"},
    {"ttl_s": 60},
    {"correlation_id": "c-2"},
    {"on_dependency_failure": OnDependencyFailure.RUN},
    {"delay_ms": 5_000},
    {"run_at": T0 + 7_000},
    {"run_at": T0 - 7_000},
]


@pytest.mark.guarantee("S2")
@pytest.mark.parametrize("other", OTHERS, ids=str)
@pytest.mark.parametrize("alike", [True, False])
async def test_each_job_of_a_batch_is_stored_as_it_is(
    driver: StoreDriver, other: dict[str, Any], *, alike: bool
) -> None:
    usual: dict[str, Any] = {"kind": "cut", "queue": "media", "requester_id": "acme", "correlation_id": "c-1"}
    shapes = [usual | other] * 3 if alike else [usual, usual | other, usual]
    batch = [new_job(payload=f'{{"n":"{n},ü"}}', **shape) for n, shape in enumerate(shapes)]
    assert [answer.job_id for answer in await driver.enqueue(*batch)] == [new.job_id for new in batch]
    for new in batch:
        job = await driver.get(new.job_id)
        for name in ("kind", "payload", "queue", "priority", "requester_id", "contract", "retry", "ttl_s"):
            assert getattr(job, name) == getattr(new, name), name
        assert (job.correlation_id, job.on_dependency_failure) == (new.correlation_id, new.on_dependency_failure)
        assert job.max_attempts == max_attempts_of(new)
        assert (job.run_at, job.created_at) == (T0 + new.delay_ms if new.run_at is None else new.run_at, T0)
        assert job.held == (HoldReason.DELAY if job.run_at > T0 else None)
    if alike:
        jobs = await driver.store.claim(ClaimRequest("w", queues=(batch[0].queue,), limit=9), now=T0 + 9_000)
        assert [job.job_id for job in jobs] == [new.job_id for new in batch]


@pytest.mark.guarantee("S2")
async def test_the_first_event_is_queued(driver: StoreDriver) -> None:
    job_id = await driver.add()
    (event,) = await driver.events(job_id)
    assert (event.seq, event.ms, event.type, event.step, event.data) == (
        1,
        T0,
        "queued",
        "gateway.enqueue",
        "{}",
    )
    assert event.id == f"{T0}-1"


@pytest.mark.guarantee("S2")
async def test_a_large_batch_is_stored(driver: StoreDriver) -> None:
    batch = [new_job(payload=f'{{"n":{n}}}') for n in range(1200)]
    answers = await driver.enqueue(*batch)
    assert [a.job_id for a in answers] == [n.job_id for n in batch]
    assert (await driver.store.counts())["default"] == {Status.QUEUED: 1200}


@pytest.mark.guarantee("S2")
async def test_an_empty_batch_is_nothing(driver: StoreDriver) -> None:
    assert await driver.enqueue() == []


@pytest.mark.guarantee("S2", "S5")
async def test_a_taken_id_refuses_the_whole_batch(driver: StoreDriver) -> None:
    first = new_job()
    await driver.enqueue(first)
    other = new_job(unique_key="k", idempotency=Idempotency("key", "h"))
    with pytest.raises(DuplicateJob):
        await driver.enqueue(other, first)
    assert await driver.store.get([other.job_id]) == [None]
    assert await driver.store.idempotency_record("", "key", now=driver.now) is None
    assert (await driver.enqueue(other))[0].created


@pytest.mark.guarantee("S2", "S5")
async def test_the_same_id_twice_in_a_batch_is_refused(driver: StoreDriver) -> None:
    new = new_job()
    with pytest.raises(DuplicateJob):
        await driver.enqueue(new, new)
    assert await driver.store.get([new.job_id]) == [None]


@pytest.mark.guarantee("S3")
async def test_the_same_key_and_request_answer_with_the_first_job(driver: StoreDriver) -> None:
    key = Idempotency("k1", "hash", '{"job":1}', ttl_s=60)
    first = new_job(requester_id="acme", idempotency=key)
    await driver.enqueue(first)
    second = new_job(requester_id="acme", idempotency=key._replace(response='{"job":2}'))
    (answer,) = await driver.enqueue(second)
    assert answer == (first.job_id, False, '{"job":1}')
    assert await driver.store.get([second.job_id]) == [None]
    record = await driver.store.idempotency_record("acme", "k1", now=driver.now)
    assert record == ("hash", first.job_id, '{"job":1}', T0 + 60_000)


@pytest.mark.guarantee("S3")
async def test_the_same_key_with_another_request_is_a_conflict(driver: StoreDriver) -> None:
    await driver.enqueue(new_job(idempotency=Idempotency("k1", "hash")))
    other = new_job()
    with pytest.raises(IdempotencyConflict):
        await driver.enqueue(other, new_job(idempotency=Idempotency("k1", "another")))
    assert await driver.store.get([other.job_id]) == [None]


@pytest.mark.guarantee("S3")
async def test_keys_of_two_requesters_are_apart(driver: StoreDriver) -> None:
    key = Idempotency("k1", "hash")
    (a,) = await driver.enqueue(new_job(requester_id="a", idempotency=key))
    (b,) = await driver.enqueue(new_job(requester_id="b", idempotency=key._replace(request_hash="other")))
    assert a.created
    assert b.created


@pytest.mark.guarantee("S3")
async def test_an_expired_key_is_free(driver: StoreDriver) -> None:
    key = Idempotency("k1", "hash", ttl_s=60)
    await driver.enqueue(new_job(idempotency=key))
    driver.later(60_000)
    assert await driver.store.idempotency_record("", "k1", now=driver.now) is None
    (answer,) = await driver.enqueue(new_job(idempotency=Idempotency("k1", "another")))
    assert answer.created


@pytest.mark.guarantee("S3")
async def test_a_key_answers_after_its_job_has_ended(driver: StoreDriver) -> None:
    key = Idempotency("k1", "hash", "[1]")
    job = await driver.running(idempotency=key)
    await driver.done(job)
    (answer,) = await driver.enqueue(new_job(idempotency=key))
    assert answer == (job.job_id, False, "[1]")


@pytest.mark.guarantee("S3", "S4")
async def test_many_at_once_make_one_job(driver: StoreDriver) -> None:
    async def post(n: int) -> Any:
        key = Idempotency("k", "h", str(n))
        return (await driver.enqueue(new_job(idempotency=key, unique_key="u")))[0]

    answers = await asyncio.gather(*(post(n) for n in range(40)))
    assert sum(a.created for a in answers) == 1
    assert len({a.job_id for a in answers}) == 1
    assert (await driver.store.counts())["default"] == {Status.QUEUED: 1}


@pytest.mark.guarantee("S4")
async def test_a_unique_key_finds_the_active_job(driver: StoreDriver) -> None:
    first = await driver.add(unique_key="video-1:transcode")
    again, other = await driver.enqueue(
        new_job(unique_key="video-1:transcode"), new_job(unique_key="video-2:transcode")
    )
    assert again == (first, False, None)
    assert other.created
    await driver.claim(limit=1)
    (still,) = await driver.enqueue(new_job(unique_key="video-1:transcode"))
    assert still == (first, False, None)


@pytest.mark.guarantee("S4")
async def test_a_unique_key_is_free_when_its_job_has_ended(driver: StoreDriver) -> None:
    job = await driver.running(unique_key="u")
    await driver.done(job)
    (answer,) = await driver.enqueue(new_job(unique_key="u"))
    assert answer.created


@pytest.mark.guarantee("S4")
async def test_one_batch_with_the_same_unique_key_makes_one_job(driver: StoreDriver) -> None:
    a, b = await driver.enqueue(new_job(unique_key="u"), new_job(unique_key="u"))
    assert a.created
    assert b == (a.job_id, False, None)


@pytest.mark.guarantee("S5")
async def test_an_unknown_dependency_refuses_the_batch(driver: StoreDriver) -> None:
    new = new_job()
    missing = new_job()
    with pytest.raises(DependencyNotFound):
        await driver.enqueue(new, new_job(depends_on=(missing.job_id,)))
    assert await driver.store.get([new.job_id]) == [None]


@pytest.mark.guarantee("S5")
async def test_a_batch_may_name_its_own_jobs_in_any_order(driver: StoreDriver) -> None:
    last = new_job()
    first = new_job(depends_on=(last.job_id,))
    await driver.enqueue(first, last)
    assert (await driver.get(first.job_id)).held is HoldReason.DEPENDENCY
    assert [j.job_id for j in await driver.claim()] == [last.job_id]


async def test_find_and_counts_see_a_requesters_own_jobs(driver: StoreDriver) -> None:
    mine = [await driver.add(requester_id="me", kind="a" if n % 2 else "b") for n in range(5)]
    await driver.add(requester_id="you")
    page = await driver.store.find(JobQuery(requester_id="me", limit=2))
    assert [j.job_id for j in page.jobs] == [mine[4], mine[3]]
    rest = await driver.store.find(JobQuery(requester_id="me", limit=10, cursor=page.cursor))
    assert [j.job_id for j in rest.jobs] == [mine[2], mine[1], mine[0]]
    assert rest.cursor is None
    odd = await driver.store.find(JobQuery(requester_id="me", kind="a"))
    assert [j.job_id for j in odd.jobs] == [mine[3], mine[1]]


@pytest.mark.guarantee("S20")
async def test_find_filters_by_status_queue_contract_and_time(driver: StoreDriver) -> None:
    old = await driver.running(requester_id="me", queue="q1")
    driver.later(1000)
    new = await driver.add(requester_id="me", queue="q2", contract="aura")
    await driver.add(requester_id="you", queue="q2")

    async def ids(**filters: Any) -> list[str]:
        page = await driver.store.find(JobQuery(requester_id="me", **filters))
        return [job.job_id for job in page.jobs]

    assert await ids() == [new, old.job_id]
    assert await ids(statuses=(Status.RUNNING,)) == [old.job_id]
    assert await ids(statuses=(Status.RUNNING, Status.QUEUED)) == [new, old.job_id]
    assert await ids(statuses=(Status.FAILED,)) == []
    assert await ids(queue="q2") == [new]
    assert await ids(contract="aura") == [new]
    assert await ids(created_from=T0 + 1) == [new]
    assert await ids(created_to=T0 + 1) == [old.job_id]
    everyone = await driver.store.find(JobQuery())
    assert len(everyone.jobs) == 3


@pytest.mark.guarantee("S1")
async def test_without_a_given_time_the_stores_clock_is_used(driver: StoreDriver) -> None:
    before = await driver.store.now()
    new = new_job(delay_ms=60_000)
    await driver.store.enqueue([new])
    after = await driver.store.now()
    job = await driver.get(new.job_id)
    assert before <= job.created_at <= after
    assert job.run_at == job.created_at + 60_000
    await driver.store.enqueue([new_job()])
    (claimed_job,) = await driver.store.claim(ClaimRequest("w", lease_ms=5_000))
    assert claimed_job.lease_expires_at is not None
    assert before + 5_000 <= claimed_job.lease_expires_at <= await driver.store.now() + 5_000


@pytest.mark.guarantee("S26")
async def test_a_full_queue_takes_nothing_of_a_batch(driver: StoreDriver) -> None:
    idempotency = Idempotency("k", "h", '"first"')
    await driver.store.enqueue(
        [new_job(idempotency=idempotency), new_job(delay_ms=9_000)], depth_limit=2, now=driver.now
    )
    batch = [new_job(queue="other"), new_job()]
    with pytest.raises(QueueFull, match="holds 2 jobs"):
        await driver.store.enqueue(batch, depth_limit=2, now=driver.now)
    assert await driver.store.get([new.job_id for new in batch]) == [None, None]
    (again,) = await driver.store.enqueue([new_job(idempotency=idempotency)], depth_limit=2, now=driver.now)
    assert not again.created  # what is there already takes no place
    assert (await driver.store.enqueue([batch[0]], depth_limit=2, now=driver.now))[0].created
    job = await driver.claim_one()
    assert (await driver.store.enqueue([batch[1]], depth_limit=2, now=driver.now))[
        0
    ].created  # what runs does not count
    await driver.done(job)
    with pytest.raises(QueueFull):
        await driver.store.enqueue([new_job(), new_job()], depth_limit=3, now=driver.now)
    assert len(await driver.store.enqueue([new_job() for _ in range(5)], now=driver.now)) == 5


@pytest.mark.guarantee("S42")
async def test_what_a_job_resumes_is_written_with_it(driver: StoreDriver) -> None:
    first = new_job()
    resuming = [new_job(resumed_from=first.job_id), new_job(), new_job(resumed_from=first.job_id, delay_ms=5)]
    await driver.enqueue(first, *resuming)
    expected = [{}, {"~resumed_from": f'"{first.job_id}"'}, {}, {"~resumed_from": f'"{first.job_id}"'}]
    assert [await driver.store.checkpoints(new.job_id) for new in (first, *resuming)] == expected
    taken_job = new_job(resumed_from=first.job_id)
    with pytest.raises(DuplicateJob):
        await driver.enqueue(taken_job, new_job(job_id=first.job_id))
    assert await driver.store.checkpoints(taken_job.job_id) == {}, "a refused batch leaves nothing"
    (job,) = [job for job in await driver.claim(limit=1) if job.job_id == first.job_id]
    follow = new_job(resumed_from=first.job_id)
    await driver.settle(commands.succeed(job, follow_ups=(follow,)))
    assert "~resumed_from" in await driver.store.checkpoints(follow.job_id)
