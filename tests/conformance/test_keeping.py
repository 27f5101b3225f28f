from __future__ import annotations

import asyncio
from typing import Any

import pytest

from callsheet.kernel import commands
from callsheet.kernel.errors import DocumentConflict
from callsheet.kernel.job import Delivery, Idempotency, NewOutboxEvent, Status
from callsheet.kernel.retry import JobError
from callsheet.kernel.settlement import OutboxSettlement
from callsheet.store.protocol import Document, JobQuery
from tests.store_driver import T0, StoreDriver, new_job


@pytest.mark.guarantee("S19")
async def test_prune_takes_only_ended_jobs_and_all_that_hangs_on_them(driver: StoreDriver) -> None:
    waiting, running = await driver.add(queue="w"), await driver.running()
    old = await driver.running(idempotency=Idempotency("k", "h", ttl_s=10**6), unique_key="u")
    await driver.settle(commands.checkpoint(old, "a", "1"), commands.succeed(old))
    driver.later(10_000)
    young = await driver.running()
    await driver.done(young)
    assert await driver.store.prune(ended_before=driver.now, limit=100, now=driver.now) == 1
    assert await driver.store.get([old.job_id]) == [None]
    assert await driver.events(old.job_id) == []
    assert await driver.store.attempts(old.job_id) == []
    assert await driver.store.checkpoints(old.job_id) == {}
    for job_id in (waiting, running.job_id, young.job_id):
        await driver.get(job_id)
    assert len((await driver.store.find(JobQuery())).jobs) == 3
    assert (await driver.store.counts())["default"] == {Status.RUNNING: 1, Status.SUCCEEDED: 1}
    driver.later(10**9)
    assert await driver.store.prune(ended_before=driver.now, limit=100, now=driver.now) == 1
    assert await driver.store.idempotency_record("", "k", now=T0) is None


@pytest.mark.guarantee("S19")
async def test_prune_keeps_to_its_limit_oldest_first(driver: StoreDriver) -> None:
    ended_jobs = []
    for _ in range(5):
        job = await driver.running()
        await driver.done(job)
        ended_jobs.append(job.job_id)
        driver.later(1)
    assert await driver.store.prune(ended_before=driver.now, limit=2, now=driver.now) == 2
    assert [j is None for j in await driver.store.get(ended_jobs)] == [True, True, False, False, False]


@pytest.mark.guarantee("S19")
async def test_a_jobs_own_ttl_counts_from_its_end(driver: StoreDriver) -> None:
    job = await driver.running(ttl_s=60)
    driver.later(3_600_000)
    assert await driver.store.prune(ended_before=0, limit=10, now=driver.now) == 0
    await driver.done(job)
    driver.later(60_000)
    assert await driver.store.prune(ended_before=0, limit=10, now=driver.now) == 0
    driver.later(1)
    assert await driver.store.prune(ended_before=0, limit=10, now=driver.now) == 1


@pytest.mark.guarantee("S19")
async def test_prune_keeps_callbacks_that_are_not_delivered(driver: StoreDriver) -> None:
    job = await driver.running()
    rows = (NewOutboxEvent("a", "u", "b"), NewOutboxEvent("b", "u", "b"))
    await driver.settle(commands.succeed(job, outbox=rows))
    (first,) = await driver.store.outbox_claim("d", limit=1, lease_ms=1000, now=driver.now)
    await driver.store.outbox_settle(
        [OutboxSettlement(first.event_id, first.claim_version, Delivery.DELIVERED)], now=driver.now
    )
    driver.later(10)
    await driver.store.prune(ended_before=driver.now, limit=10, now=driver.now)
    assert [row.event_id for row in await driver.store.outbox_find()] == ["b"]


@pytest.mark.guarantee("S19")
async def test_a_callback_that_outlived_its_job_is_pruned_after_its_own_end(driver: StoreDriver) -> None:
    job = await driver.running()
    await driver.settle(commands.succeed(job, outbox=(NewOutboxEvent("a", "u", "b"),)))
    driver.later(10)
    assert await driver.store.prune(ended_before=driver.now, limit=10, now=driver.now) == 1
    (row,) = await driver.store.outbox_claim("d", limit=1, lease_ms=1000, now=driver.now)
    await driver.store.outbox_settle([OutboxSettlement("a", row.claim_version, Delivery.DELIVERED)], now=driver.now)
    await driver.store.prune(ended_before=driver.now, limit=10, now=driver.now)
    assert len(await driver.store.outbox_find()) == 1
    driver.later(1)
    assert await driver.store.prune(ended_before=driver.now, limit=10, now=driver.now) == 0
    assert await driver.store.outbox_find() == []


@pytest.mark.guarantee("S32")
async def test_delete_takes_the_chosen_ended_jobs_and_all_that_hangs_on_them(driver: StoreDriver) -> None:
    kept_id, waiting = await driver.running(requester_id="a"), await driver.add(queue="w")
    chosen_job = await driver.running(requester_id="a", ttl_s=60, max_attempts=1, unique_key="u")
    await driver.settle(commands.checkpoint(chosen_job, "a", "1"), commands.fail(chosen_job, JobError("x"), rand=0))
    await driver.done(kept_id)
    dead = await driver.get(chosen_job.job_id)
    assert await driver.store.delete([dead.claim, dead.claim, (await driver.get(waiting)).claim]) == 1
    assert await driver.store.delete([dead.claim]) == 0
    assert await driver.store.delete([]) == 0
    assert await driver.store.get([dead.job_id]) == [None]
    assert await driver.events(dead.job_id) == []
    assert await driver.store.attempts(dead.job_id) == []
    assert await driver.store.checkpoints(dead.job_id) == {}
    assert [job.job_id for job in (await driver.store.find(JobQuery("a"))).jobs] == [kept_id.job_id]
    assert await driver.store.counts() == {"default": {Status.SUCCEEDED: 1}, "w": {Status.QUEUED: 1}}
    driver.later(10**9)
    assert (
        await driver.store.prune(ended_before=driver.now, limit=100, now=driver.now) == 1
    )  # nothing of it is left behind
    assert await driver.store.counts() == {"w": {Status.QUEUED: 1}}
    await driver.add(job_id=dead.job_id)


@pytest.mark.guarantee("S32")
async def test_delete_leaves_a_job_that_moved_since_it_was_read(driver: StoreDriver) -> None:
    job = await driver.running(max_attempts=1)
    assert await driver.store.delete([job.claim]) == 0
    await driver.settle(commands.fail(job, JobError("x"), rand=0))
    dead = await driver.get(job.job_id)
    await driver.settle(commands.requeue(dead))
    assert await driver.store.delete([dead.claim]) == 0
    again = await driver.claim_one()
    await driver.done(again)
    assert await driver.store.delete([dead.claim]) == 0
    assert (await driver.get(job.job_id)).status is Status.SUCCEEDED
    assert await driver.store.delete([again.claim]) == 1


async def test_dead_letters_are_found_until_they_come_back_or_go(driver: StoreDriver) -> None:
    dead = []
    for _ in range(3):
        job = await driver.running(max_attempts=1, requester_id="a")
        await driver.settle(commands.fail(job, JobError("x"), rand=0))
        dead.append(await driver.get(job.job_id))
    failed_job = await driver.running(requester_id="b")
    await driver.settle(commands.dead_letter(failed_job, JobError("x"))._replace(status=Status.FAILED))
    retried_job = await driver.running(queue="c")
    await driver.settle(commands.fail(retried_job, JobError("x"), rand=0)._replace(delay_ms=0))
    await driver.settle(commands.cancel(await driver.get(retried_job.job_id)))  # ended, with an error

    async def found(*statuses: Status, **more: Any) -> list[str]:
        return [job.job_id for job in (await driver.store.find(JobQuery(statuses=statuses, **more))).jobs]

    newest_first = [job.job_id for job in reversed(dead)]
    assert await found(Status.DEAD_LETTER) == await found(Status.DEAD_LETTER, requester_id="a") == newest_first
    assert await found(Status.DEAD_LETTER, requester_id="b") == []
    assert await found(Status.FAILED) == [failed_job.job_id]
    assert await found(Status.FAILED, Status.DEAD_LETTER) == [failed_job.job_id, *newest_first]
    page = await driver.store.find(JobQuery(statuses=(Status.DEAD_LETTER,), limit=1))
    assert await found(Status.DEAD_LETTER, cursor=page.cursor) == newest_first[1:]
    await driver.settle(commands.requeue(dead[2]))
    await driver.store.delete([dead[1].claim])
    assert await found(Status.DEAD_LETTER) == [dead[0].job_id]
    driver.later(10)
    await driver.store.prune(ended_before=driver.now, limit=10, now=driver.now)
    assert await found(Status.DEAD_LETTER) == []


@pytest.mark.guarantee("S20")
async def test_open_jobs_are_found_by_whether_they_ever_began(driver: StoreDriver) -> None:
    new, retried_id, claimed_id, runs, dead = [await driver.add(requester_id="a", queue=name) for name in "abcde"]
    (job,) = await driver.claim("b")
    await driver.settle(commands.retry(job, JobError("x"), delay_ms=5))
    await driver.claim("c", start=False)
    await driver.claim("d")
    (job,) = await driver.claim("e")
    await driver.settle(commands.dead_letter(job, JobError("x")))

    async def found(*statuses: Status, has_begun: bool, requester_id: str | None = None) -> list[str]:
        query, ids = JobQuery(requester_id, statuses, has_begun=has_begun, limit=1), []
        while True:
            page = await driver.store.find(query)
            ids += [job.job_id for job in page.jobs]
            if page.cursor is None:
                return ids
            query = query._replace(cursor=page.cursor)

    assert await found(Status.QUEUED, Status.RUNNING, has_begun=True) == [runs, retried_id]
    assert await found(Status.QUEUED, Status.RUNNING, has_begun=False, requester_id="a") == [claimed_id, new]
    assert await found(Status.QUEUED, has_begun=True, requester_id="a") == [retried_id]
    assert await found(Status.RUNNING, Status.DEAD_LETTER, has_begun=False) == [dead, claimed_id]  # an end is an end
    assert await found(Status.DEAD_LETTER, has_begun=False) == [dead]
    assert await found(has_begun=True) == [dead, runs, retried_id]


@pytest.mark.guarantee("S32")
async def test_delete_keeps_callbacks_that_are_not_delivered(driver: StoreDriver) -> None:
    job = await driver.running()
    rows = (NewOutboxEvent("a", "u", "b"), NewOutboxEvent("b", "u", "b"))
    await driver.settle(commands.succeed(job, outbox=rows))
    (first,) = await driver.store.outbox_claim("d", limit=1, lease_ms=1000, now=driver.now)
    await driver.store.outbox_settle(
        [OutboxSettlement(first.event_id, first.claim_version, Delivery.DELIVERED)], now=driver.now
    )
    assert await driver.store.delete([job.claim]) == 1
    assert [row.event_id for row in await driver.store.outbox_find()] == ["b"]


async def test_counts_follow_every_move(driver: StoreDriver) -> None:
    await driver.enqueue(*(new_job(queue="a", max_attempts=1) for _ in range(6)), new_job(queue="b"))
    jobs = await driver.claim("a", limit=5)
    await driver.done(jobs[0])
    await driver.settle(commands.fail(jobs[1], JobError("fatal"), rand=0))
    await driver.settle(commands.fail(jobs[2], JobError("x"), rand=0))
    await driver.settle(commands.cancel(jobs[3]))
    assert await driver.store.counts() == {
        "a": {
            Status.QUEUED: 1,
            Status.RUNNING: 1,
            Status.SUCCEEDED: 1,
            Status.FAILED: 1,
            Status.DEAD_LETTER: 1,
            Status.CANCELED: 1,
        },
        "b": {Status.QUEUED: 1},
    }


@pytest.mark.guarantee("S24")
async def test_documents_change_by_version(driver: StoreDriver) -> None:
    put = driver.store.put_document
    first = await put(Document("key", "b", '{"a":1}', 0))
    await put(Document("key", "a", "1", 0))
    await put(Document("schedule", "a", "2", 0))
    assert first.version == 1
    with pytest.raises(DocumentConflict):
        await put(Document("key", "b", "x", 0))
    second = await put(first._replace(body='{"a":2}'))
    assert second.version == 2
    with pytest.raises(DocumentConflict):
        await put(first._replace(body="x"))
    assert [d.id for d in await driver.store.documents("key")] == ["a", "b"]
    assert await driver.store.documents("key", "b") == [second]
    assert await driver.store.documents("nothing") == []
    for odd in ("\0", "b\0", "\0b"):
        assert await driver.store.documents("key", odd) == []
        assert await driver.store.delete_document("key", odd) is False
    assert await driver.store.delete_document("key", "b")
    assert not await driver.store.delete_document("key", "b")
    with pytest.raises(DocumentConflict):
        await put(second)


@pytest.mark.guarantee("S24")
async def test_of_many_writers_of_one_version_one_wins(driver: StoreDriver) -> None:
    document = await driver.store.put_document(Document("k", "x", "0", 0))

    async def write(n: int) -> bool:
        try:
            await driver.store.put_document(document._replace(body=str(n)))
        except DocumentConflict:
            return False
        return True

    assert sum(await asyncio.gather(*(write(n) for n in range(20)))) == 1


async def test_unknown_ids_are_nothing(driver: StoreDriver) -> None:
    job_id = new_job().job_id
    assert await driver.store.get([job_id]) == [None]
    assert await driver.store.get([]) == []
    assert await driver.events(job_id) == []
    assert await driver.store.attempts(job_id) == []
    assert await driver.store.checkpoints(job_id) == {}


async def test_a_running_attempt_is_listed(driver: StoreDriver) -> None:
    job = await driver.running()
    (attempt,) = await driver.store.attempts(job.job_id)
    assert (attempt.started_at, attempt.ended_at, attempt.outcome) == (T0, None, None)


async def test_closing_twice_is_fine_and_migrating_twice_does_nothing(driver: StoreDriver) -> None:
    assert await driver.store.migrate() == []
    await driver.store.close()
    await driver.store.close()


async def test_a_store_says_how_durable_it_is(driver: StoreDriver) -> None:
    assert len(driver.store.durability) > 5
