from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator

import asyncpg
import pytest

from callsheet.kernel import commands
from callsheet.kernel.errors import CallsheetError
from callsheet.kernel.job import HoldReason, Job, NewJob, Status
from callsheet.store.postgres import PostgresStore, connection
from callsheet.store.postgres.connection import Row
from callsheet.store.postgres.enqueue import enqueue_within
from callsheet.store.protocol import ClaimRequest, Enqueued, HeartbeatResult, Settled
from callsheet.store.queries import Queries

Q = Queries("callsheet.store.postgres")


def new_id() -> str:
    return str(uuid.uuid4())


@pytest.fixture
async def other(store: PostgresStore, url: str) -> AsyncIterator[PostgresStore]:
    """Open a second store, which the database sees as another process."""
    opened = await PostgresStore.from_url(url).open()
    yield opened
    await opened.close()


async def settle(store: PostgresStore, job: Job) -> Settled:
    (answer,) = await store.settle([commands.succeed(job)])
    return answer


async def test_two_parents_that_end_together_free_their_child_once(store: PostgresStore, other: PostgresStore) -> None:
    for _ in range(200):
        a, b, child = new_id(), new_id(), new_id()
        await store.enqueue([NewJob(a, "k"), NewJob(b, "k"), NewJob(child, "k", depends_on=(a, b))])
        first, second = await store.claim(ClaimRequest("w", limit=9))
        answers = list(await asyncio.gather(settle(store, first), settle(other, second)))
        assert answers == [Settled.APPLIED] * 2
        (freed,) = await store.claim(ClaimRequest("w", limit=9))
        assert (freed.job_id, freed.blocked_by, freed.held) == (child, 0, None)
        await settle(store, freed)


async def test_batches_that_free_the_same_children_crosswise_do_not_wait_for_each_other(
    store: PostgresStore, other: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "TRIES", 1)  # a deadlock is not tried again, but told
    for _ in range(30):
        p, q, r, s, left, right = (new_id() for _ in range(6))
        children = [NewJob(left, "k", depends_on=(p, s)), NewJob(right, "k", depends_on=(q, r))]
        await store.enqueue([*(NewJob(parent, "k") for parent in (p, q, r, s)), *children])
        running = {job.job_id: commands.succeed(job) for job in await store.claim(ClaimRequest("w", limit=9))}
        batches = [running[p], running[q]], [running[r], running[s]]
        answers = await asyncio.gather(store.settle(batches[0]), other.settle(batches[1]))
        assert list(answers) == [[Settled.APPLIED] * 2] * 2
        freed = await store.claim(ClaimRequest("w", limit=9))
        assert {job.job_id for job in freed} == {left, right}
        await store.settle([commands.succeed(job) for job in freed])


async def test_due_jobs_that_others_take_meanwhile_hide_no_queue_behind_them(
    store: PostgresStore, other: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = NewJob(new_id(), "k", queue="a", delay_ms=1_000), NewJob(new_id(), "k", queue="b")
    later = await store.now() + 2_000
    fetch = store._db.fetch

    async def with_another(sql: str, *parameters: object) -> list[Row]:
        if sql == Q.due:
            assert [job.job_id for job in await other.claim(ClaimRequest("v", ("a",)), now=later)] == [first.job_id]
        return await fetch(sql, *parameters)

    await store.enqueue([first, second])
    monkeypatch.setattr(store._db, "fetch", with_another)
    jobs = await store.claim(ClaimRequest("w", ("a", "b"), limit=9), now=later)
    assert [job.job_id for job in jobs] == [second.job_id]


async def test_a_child_enqueued_while_its_parent_ends_is_never_stuck(
    store: PostgresStore, other: PostgresStore
) -> None:
    for _ in range(200):
        parent, child = new_id(), new_id()
        await store.enqueue([NewJob(parent, "k")])
        (running,) = await store.claim(ClaimRequest("w"))
        await asyncio.gather(settle(store, running), other.enqueue([NewJob(child, "k", depends_on=(parent,))]))
        (freed,) = await store.claim(ClaimRequest("w"))
        assert freed.job_id == child
        await settle(store, freed)


async def test_a_settle_that_races_heartbeats_is_applied(store: PostgresStore, other: PostgresStore) -> None:
    await store.enqueue([NewJob(new_id(), "k") for _ in range(400)])
    for _ in range(20):
        jobs = await store.claim(ClaimRequest("w", limit=20))
        beats = [other.heartbeat([job.claim for job in jobs], lease_ms=30_000) for _ in range(4)]
        answers, *_ = await asyncio.gather(store.settle([commands.succeed(job) for job in jobs]), *beats)
        assert answers == [Settled.APPLIED] * 20


async def test_slots_are_never_exceeded_by_eight_workers(store: PostgresStore, url: str) -> None:
    limit, jobs = 3, 120
    running: dict[str, set[str]] = {"x": set(), "y": set()}
    log: list[str] = []
    await store.enqueue(
        [NewJob(new_id(), "k", concurrency_key="xy"[i % 2], concurrency_limit=limit) for i in range(jobs)]
    )

    async def work(name: str) -> None:
        async with opened(url) as own:
            while len(log) < jobs:
                for job in await own.claim(ClaimRequest(name, limit=2)):
                    active = running[job.concurrency_key or ""]
                    active.add(job.job_id)
                    assert len(active) <= limit
                    await asyncio.sleep(0)
                    active.discard(job.job_id)
                    assert await settle(own, job) is Settled.APPLIED
                    log.append(job.job_id)

    async with asyncio.timeout(60):
        await asyncio.gather(*(work(f"w{i}") for i in range(8)))
    assert sorted(log) == sorted(set(log))
    assert await store.counts() == {"default": {Status.SUCCEEDED: jobs}}


async def test_one_of_many_enqueues_with_one_unique_key_makes_a_job(store: PostgresStore, url: str) -> None:
    async with opened(url) as a, opened(url) as b:
        for i in range(30):
            answers: list[list[Enqueued]] = await asyncio.gather(
                *(s.enqueue([NewJob(new_id(), "k", unique_key=f"u{i}")]) for s in (store, a, b))
            )
            assert sum(answer.created for (answer,) in answers) == 1
            assert len({answer.job_id for (answer,) in answers}) == 1


async def test_claimers_share_a_line_without_doubles(store: PostgresStore, url: str) -> None:
    await store.enqueue([NewJob(new_id(), "k") for _ in range(1_000)])
    taken_jobs: list[str] = []

    async def drain(name: str) -> None:
        async with opened(url) as own:
            while jobs := await own.claim(ClaimRequest(name, limit=7)):
                taken_jobs.extend(job.job_id for job in jobs)

    await asyncio.gather(*(drain(f"w{i}") for i in range(6)))
    taken_jobs += [job.job_id for job in await store.claim(ClaimRequest("w", limit=1_000))]
    assert len(taken_jobs) == len(set(taken_jobs)) == 1_000


async def test_due_jobs_enter_the_line_once(store: PostgresStore, other: PostgresStore) -> None:
    await store.enqueue([NewJob(new_id(), "k", delay_ms=1_000) for _ in range(300)], now=1_000)
    results = await asyncio.gather(
        *(s.claim(ClaimRequest("w", limit=50), now=9_000) for s in (store, other) for _ in range(5))
    )
    results.append(await store.claim(ClaimRequest("w", limit=300), now=9_000))
    ids = [job.job_id for jobs in results for job in jobs]
    assert len(ids) == len(set(ids)) == 300


async def test_a_freed_slot_goes_on_when_settles_race(store: PostgresStore, other: PostgresStore) -> None:
    for _ in range(50):
        await store.enqueue([NewJob(new_id(), "k", concurrency_key="z", concurrency_limit=2) for _ in range(4)])
        a, b = await store.claim(ClaimRequest("w", limit=9))
        await asyncio.gather(settle(store, a), settle(other, b))
        c, d = await store.claim(ClaimRequest("w", limit=9))
        assert c.held is not HoldReason.SLOT
        await asyncio.gather(settle(other, c), settle(store, d))


class opened:  # noqa: N801 - reads as a verb
    """Open a store with separate connections during the block."""

    def __init__(self, url: str) -> None:
        self._store = PostgresStore.from_url(url)

    async def __aenter__(self) -> PostgresStore:
        return await self._store.open()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert kind is None or not issubclass(kind, CallsheetError)
        await self._store.close()


async def test_admission_waits_for_the_lock_of_its_key(store: PostgresStore, url: str) -> None:
    await store.enqueue([NewJob(new_id(), "k", concurrency_key="key") for _ in range(2)])
    blocker = await asyncpg.connect(url)
    try:
        transaction = blocker.transaction()
        await transaction.start()
        await blocker.execute("SELECT FROM concurrency_limits WHERE concurrency_key = 'key' FOR UPDATE")
        waiting = asyncio.create_task(store.promote())
        completed_tasks, _ = await asyncio.wait([waiting], timeout=0.5)
        assert not completed_tasks
        await transaction.rollback()
        assert await waiting == 0
    finally:
        await blocker.close()


async def test_a_callers_open_transaction_does_not_hold_up_heartbeats(
    store: PostgresStore, other: PostgresStore, url: str
) -> None:
    waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    onlooker = await asyncpg.connect(url)
    parent, child = new_id(), new_id()
    await store.enqueue([NewJob(parent, "k"), NewJob(new_id(), "k")])
    one, two = await store.claim(ClaimRequest("w", limit=2))

    async def beat_meanwhile(session: object) -> list[HeartbeatResult]:
        await enqueue_within(session, [NewJob(child, "k", depends_on=(one.job_id,))], None)
        beating = asyncio.create_task(store.heartbeat([one.claim, two.claim], lease_ms=600_000))
        while not beating.done() and not await onlooker.fetchval(waits):
            await asyncio.sleep(0.005)
        assert beating.done(), "it waits for the caller"
        return beating.result()

    try:
        assert await other._db.transact(beat_meanwhile) == [HeartbeatResult(held=True)] * 2
    finally:
        await onlooker.close()
    assert await _extended(store, one, two) == [False, True]
    await store.heartbeat([one.claim], lease_ms=600_000)
    assert await _extended(store, one, two) == [True, True]


async def _extended(store: PostgresStore, *jobs: Job) -> list[bool]:
    now = [job.lease_expires_at if job else None for job in await store.get([job.job_id for job in jobs])]
    return [(new or 0) - (old.lease_expires_at or 0) > 300_000 for new, old in zip(now, jobs, strict=True)]


async def test_who_is_held_to_a_quota_waits_for_others_of_the_same_requester(store: PostgresStore, url: str) -> None:
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    holder = await asyncpg.connect(url)
    try:
        async with holder.transaction():
            await holder.execute(Q.lock_quota.replace("$1::text", "'acme'"))
            job = NewJob(new_id(), "k", requester_id="acme")
            adding = asyncio.create_task(store.enqueue([job], quotas={"acme": 1}))
            while not adding.done() and not await holder.fetchval(waiting):
                await asyncio.sleep(0.005)
            assert not adding.done()
            await store.enqueue(
                [NewJob(new_id(), "k", requester_id="other")], quotas={"other": 1}
            )  # it does not notice
        assert [answer.created for answer in await adding] == [True]
    finally:
        await holder.close()
