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
from tests.kit import T0, Kit, new_job


@pytest.mark.guarantee("S19")
async def test_prune_takes_only_ended_jobs_and_all_that_hangs_on_them(kit: Kit) -> None:
    waiting, running = await kit.add(queue="w"), await kit.running()
    old = await kit.running(idempotency=Idempotency("k", "h", ttl_s=10**6), unique_key="u")
    await kit.settle(commands.checkpoint(old, "a", "1"), commands.succeed(old))
    kit.later(10_000)
    young = await kit.running()
    await kit.done(young)
    assert await kit.store.prune(ended_before=kit.now, limit=100, now=kit.now) == 1
    assert await kit.store.get([old.job_id]) == [None]
    assert await kit.events(old.job_id) == []
    assert await kit.store.attempts(old.job_id) == []
    assert await kit.store.checkpoints(old.job_id) == {}
    for job_id in (waiting, running.job_id, young.job_id):
        await kit.get(job_id)
    assert len((await kit.store.find(JobQuery())).jobs) == 3
    assert (await kit.store.counts())["default"] == {Status.RUNNING: 1, Status.SUCCEEDED: 1}
    kit.later(10**9)
    assert await kit.store.prune(ended_before=kit.now, limit=100, now=kit.now) == 1
    assert await kit.store.remembered("", "k", now=T0) is None


@pytest.mark.guarantee("S19")
async def test_prune_keeps_to_its_limit_oldest_first(kit: Kit) -> None:
    ended = []
    for _ in range(5):
        job = await kit.running()
        await kit.done(job)
        ended.append(job.job_id)
        kit.later(1)
    assert await kit.store.prune(ended_before=kit.now, limit=2, now=kit.now) == 2
    assert [j is None for j in await kit.store.get(ended)] == [True, True, False, False, False]


@pytest.mark.guarantee("S19")
async def test_a_jobs_own_ttl_counts_from_its_end(kit: Kit) -> None:
    job = await kit.running(ttl_s=60)
    kit.later(3_600_000)
    assert await kit.store.prune(ended_before=0, limit=10, now=kit.now) == 0
    await kit.done(job)
    kit.later(60_000)
    assert await kit.store.prune(ended_before=0, limit=10, now=kit.now) == 0
    kit.later(1)
    assert await kit.store.prune(ended_before=0, limit=10, now=kit.now) == 1


@pytest.mark.guarantee("S19")
async def test_prune_keeps_callbacks_that_are_not_delivered(kit: Kit) -> None:
    job = await kit.running()
    rows = (NewOutboxEvent("a", "u", "b"), NewOutboxEvent("b", "u", "b"))
    await kit.settle(commands.succeed(job, outbox=rows))
    (first,) = await kit.store.outbox_claim("d", limit=1, lease_ms=1000, now=kit.now)
    await kit.store.outbox_settle(
        [OutboxSettlement(first.event_id, first.claim_version, Delivery.DELIVERED)], now=kit.now
    )
    kit.later(10)
    await kit.store.prune(ended_before=kit.now, limit=10, now=kit.now)
    assert [row.event_id for row in await kit.store.outbox_find()] == ["b"]


@pytest.mark.guarantee("S19")
async def test_a_callback_that_outlived_its_job_is_pruned_after_its_own_end(kit: Kit) -> None:
    job = await kit.running()
    await kit.settle(commands.succeed(job, outbox=(NewOutboxEvent("a", "u", "b"),)))
    kit.later(10)
    assert await kit.store.prune(ended_before=kit.now, limit=10, now=kit.now) == 1
    (row,) = await kit.store.outbox_claim("d", limit=1, lease_ms=1000, now=kit.now)
    await kit.store.outbox_settle([OutboxSettlement("a", row.claim_version, Delivery.DELIVERED)], now=kit.now)
    await kit.store.prune(ended_before=kit.now, limit=10, now=kit.now)
    assert len(await kit.store.outbox_find()) == 1
    kit.later(1)
    assert await kit.store.prune(ended_before=kit.now, limit=10, now=kit.now) == 0
    assert await kit.store.outbox_find() == []


@pytest.mark.guarantee("S32")
async def test_delete_takes_the_chosen_ended_jobs_and_all_that_hangs_on_them(kit: Kit) -> None:
    kept, waiting = await kit.running(requester_id="a"), await kit.add(queue="w")
    chosen = await kit.running(requester_id="a", ttl_s=60, max_attempts=1, unique_key="u")
    await kit.settle(commands.checkpoint(chosen, "a", "1"), commands.fail(chosen, JobError("x"), rand=0))
    await kit.done(kept)
    dead = await kit.get(chosen.job_id)
    assert await kit.store.delete([dead.claim, dead.claim, (await kit.get(waiting)).claim]) == 1
    assert await kit.store.delete([dead.claim]) == 0
    assert await kit.store.delete([]) == 0
    assert await kit.store.get([dead.job_id]) == [None]
    assert await kit.events(dead.job_id) == []
    assert await kit.store.attempts(dead.job_id) == []
    assert await kit.store.checkpoints(dead.job_id) == {}
    assert [job.job_id for job in (await kit.store.find(JobQuery("a"))).jobs] == [kept.job_id]
    assert await kit.store.counts() == {"default": {Status.SUCCEEDED: 1}, "w": {Status.QUEUED: 1}}
    kit.later(10**9)
    assert await kit.store.prune(ended_before=kit.now, limit=100, now=kit.now) == 1  # nothing of it is left behind
    assert await kit.store.counts() == {"w": {Status.QUEUED: 1}}
    await kit.add(job_id=dead.job_id)


@pytest.mark.guarantee("S32")
async def test_delete_leaves_a_job_that_moved_since_it_was_read(kit: Kit) -> None:
    job = await kit.running(max_attempts=1)
    assert await kit.store.delete([job.claim]) == 0
    await kit.settle(commands.fail(job, JobError("x"), rand=0))
    dead = await kit.get(job.job_id)
    await kit.settle(commands.requeue(dead))
    assert await kit.store.delete([dead.claim]) == 0
    again = await kit.claim_one()
    await kit.done(again)
    assert await kit.store.delete([dead.claim]) == 0
    assert (await kit.get(job.job_id)).status is Status.SUCCEEDED
    assert await kit.store.delete([again.claim]) == 1


async def test_dead_letters_are_found_until_they_come_back_or_go(kit: Kit) -> None:
    dead = []
    for _ in range(3):
        job = await kit.running(max_attempts=1, requester_id="a")
        await kit.settle(commands.fail(job, JobError("x"), rand=0))
        dead.append(await kit.get(job.job_id))
    failed = await kit.running(requester_id="b")
    await kit.settle(commands.dead_letter(failed, JobError("x"))._replace(status=Status.FAILED))
    retried = await kit.running(queue="c")
    await kit.settle(commands.fail(retried, JobError("x"), rand=0)._replace(delay_ms=0))
    await kit.settle(commands.cancel(await kit.get(retried.job_id)))  # ended, with an error

    async def found(*statuses: Status, **more: Any) -> list[str]:
        return [job.job_id for job in (await kit.store.find(JobQuery(statuses=statuses, **more))).jobs]

    newest_first = [job.job_id for job in reversed(dead)]
    assert await found(Status.DEAD_LETTER) == await found(Status.DEAD_LETTER, requester_id="a") == newest_first
    assert await found(Status.DEAD_LETTER, requester_id="b") == []
    assert await found(Status.FAILED) == [failed.job_id]
    assert await found(Status.FAILED, Status.DEAD_LETTER) == [failed.job_id, *newest_first]
    page = await kit.store.find(JobQuery(statuses=(Status.DEAD_LETTER,), limit=1))
    assert await found(Status.DEAD_LETTER, cursor=page.cursor) == newest_first[1:]
    await kit.settle(commands.requeue(dead[2]))
    await kit.store.delete([dead[1].claim])
    assert await found(Status.DEAD_LETTER) == [dead[0].job_id]
    kit.later(10)
    await kit.store.prune(ended_before=kit.now, limit=10, now=kit.now)
    assert await found(Status.DEAD_LETTER) == []


@pytest.mark.guarantee("S20")
async def test_open_jobs_are_found_by_whether_they_ever_began(kit: Kit) -> None:
    new, retried, claimed, runs, dead = [await kit.add(requester_id="a", queue=name) for name in "abcde"]
    (job,) = await kit.claim("b")
    await kit.settle(commands.retry(job, JobError("x"), delay_ms=5))
    await kit.claim("c", start=False)
    await kit.claim("d")
    (job,) = await kit.claim("e")
    await kit.settle(commands.dead_letter(job, JobError("x")))

    async def found(*statuses: Status, begun: bool, requester_id: str | None = None) -> list[str]:
        query, ids = JobQuery(requester_id, statuses, begun=begun, limit=1), []
        while True:
            page = await kit.store.find(query)
            ids += [job.job_id for job in page.jobs]
            if page.cursor is None:
                return ids
            query = query._replace(cursor=page.cursor)

    assert await found(Status.QUEUED, Status.RUNNING, begun=True) == [runs, retried]
    assert await found(Status.QUEUED, Status.RUNNING, begun=False, requester_id="a") == [claimed, new]
    assert await found(Status.QUEUED, begun=True, requester_id="a") == [retried]
    assert await found(Status.RUNNING, Status.DEAD_LETTER, begun=False) == [dead, claimed]  # an end is an end
    assert await found(Status.DEAD_LETTER, begun=False) == [dead]
    assert await found(begun=True) == [dead, runs, retried]


@pytest.mark.guarantee("S32")
async def test_delete_keeps_callbacks_that_are_not_delivered(kit: Kit) -> None:
    job = await kit.running()
    rows = (NewOutboxEvent("a", "u", "b"), NewOutboxEvent("b", "u", "b"))
    await kit.settle(commands.succeed(job, outbox=rows))
    (first,) = await kit.store.outbox_claim("d", limit=1, lease_ms=1000, now=kit.now)
    await kit.store.outbox_settle(
        [OutboxSettlement(first.event_id, first.claim_version, Delivery.DELIVERED)], now=kit.now
    )
    assert await kit.store.delete([job.claim]) == 1
    assert [row.event_id for row in await kit.store.outbox_find()] == ["b"]


async def test_counts_follow_every_move(kit: Kit) -> None:
    await kit.enqueue(*(new_job(queue="a", max_attempts=1) for _ in range(6)), new_job(queue="b"))
    jobs = await kit.claim("a", limit=5)
    await kit.done(jobs[0])
    await kit.settle(commands.fail(jobs[1], JobError("fatal"), rand=0))
    await kit.settle(commands.fail(jobs[2], JobError("x"), rand=0))
    await kit.settle(commands.cancel(jobs[3]))
    assert await kit.store.counts() == {
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
async def test_documents_change_by_version(kit: Kit) -> None:
    put = kit.store.put_document
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
    assert [d.id for d in await kit.store.documents("key")] == ["a", "b"]
    assert await kit.store.documents("key", "b") == [second]
    assert await kit.store.documents("nothing") == []
    for odd in ("\0", "b\0", "\0b"):
        assert await kit.store.documents("key", odd) == []
        assert await kit.store.delete_document("key", odd) is False
    assert await kit.store.delete_document("key", "b")
    assert not await kit.store.delete_document("key", "b")
    with pytest.raises(DocumentConflict):
        await put(second)


@pytest.mark.guarantee("S24")
async def test_of_many_writers_of_one_version_one_wins(kit: Kit) -> None:
    document = await kit.store.put_document(Document("k", "x", "0", 0))

    async def write(n: int) -> bool:
        try:
            await kit.store.put_document(document._replace(body=str(n)))
        except DocumentConflict:
            return False
        return True

    assert sum(await asyncio.gather(*(write(n) for n in range(20)))) == 1


async def test_unknown_ids_are_nothing(kit: Kit) -> None:
    job_id = new_job().job_id
    assert await kit.store.get([job_id]) == [None]
    assert await kit.store.get([]) == []
    assert await kit.events(job_id) == []
    assert await kit.store.attempts(job_id) == []
    assert await kit.store.checkpoints(job_id) == {}


async def test_a_running_attempt_is_listed(kit: Kit) -> None:
    job = await kit.running()
    (attempt,) = await kit.store.attempts(job.job_id)
    assert (attempt.started_at, attempt.ended_at, attempt.outcome) == (T0, None, None)


async def test_closing_twice_is_fine_and_migrating_twice_does_nothing(kit: Kit) -> None:
    assert await kit.store.migrate() == []
    await kit.store.close()
    await kit.store.close()


async def test_a_store_says_how_durable_it_is(kit: Kit) -> None:
    assert len(kit.store.durability) > 5
