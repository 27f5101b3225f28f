"""Publication, content and acknowledgement of messages."""

from __future__ import annotations

import asyncio
import sqlite3

import asyncpg
import pytest

from callsheet import Callsheet
from callsheet.engine import Housekeeping
from callsheet.kernel import commands
from callsheet.kernel.errors import DuplicateJob
from callsheet.kernel.retry import JobError
from callsheet.store.protocol import ClaimRequest, Enqueued, Settled
from tests.store_driver import new_job
from tests.transport.conftest import NEVER, Rig, Stream, rigged


async def test_a_message_has_exactly_a_job_id_and_an_enqueue_id(rig: Rig, stream: Stream) -> None:
    new = await rig.add(queue="media", payload='{"secret":1}')
    ((_, fields),) = stream.entries("media")
    assert fields == {"job_id": new.job_id, "enqueue_id": f"{new.job_id}.0"}
    assert [group["name"] for group in stream.redis.xinfo_groups(stream.key("media"))] == ["workers"]


async def test_the_prefix_of_all_keys_can_be_chosen(url: str, redis_url: str, stream: Stream) -> None:
    async with rigged(url, f"{redis_url}&prefix={{cs1}}:") as rig:
        await rig.add()
        await rig.claim()
    assert stream._replace(prefix="{cs1}:").stays()
    assert all(key.startswith("{cs1}:") for key in stream.redis.scan_iter())


async def test_a_message_is_published_after_the_commit_and_not_before(
    rig: Rig, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen = rig.engine.store.enqueue, []

    async def watched(batch: object, **more: object) -> list[Enqueued]:
        answers = await real(batch, **more)  # type: ignore[arg-type]
        await rig.sent()
        seen.append(stream.entries())
        return answers

    monkeypatch.setattr(rig.engine.store, "enqueue", watched)
    await rig.add()
    assert seen == [[]]
    assert len(stream.entries()) == 1


async def test_a_callers_transaction_publishes_nothing_until_it_commits(
    url: str, redis_url: str, stream: Stream
) -> None:
    async with rigged(url, redis_url) as rig:
        app = Callsheet(url)

        @app.task
        async def resize() -> None: ...

        async def enqueue(*, commit: bool) -> int:
            """Return the number of messages before the end."""
            if url.startswith("sqlite"):
                with sqlite3.connect(url.removeprefix("sqlite:///")) as db:
                    app.within(db).enqueue(resize)
                    await rig.transport.maintenance.relay()
                    before = len(stream.entries())
                    db.commit() if commit else db.rollback()
                return before
            db2 = await asyncpg.connect(url)
            transaction = db2.transaction()
            await transaction.start()
            await app.within(db2).enqueue(resize)
            await rig.transport.maintenance.relay()
            before = len(stream.entries())
            await (transaction.commit() if commit else transaction.rollback())
            await db2.close()
            return before

        assert await enqueue(commit=False) == 0
        await rig.transport.maintenance.relay()
        assert stream.entries() == []
        assert await enqueue(commit=True) == 0
        await rig.transport.maintenance.relay()
        assert len(stream.entries()) == 1


async def test_a_refused_batch_publishes_nothing(rig: Rig, stream: Stream) -> None:
    first = await rig.add()
    with pytest.raises(DuplicateJob):
        await rig.engine.enqueue([new_job(), first])
    await rig.sent()
    assert stream.stays() == [f"{first.job_id}.0"]


async def test_a_job_that_a_key_found_again_is_not_published_again(rig: Rig, stream: Stream) -> None:
    first = await rig.add(unique_key="k")
    await rig.add(unique_key="k")
    assert stream.stays() == [f"{first.job_id}.0"]


@pytest.mark.parametrize("way", ["release", "retry", "lease", "requeue"])
async def test_each_return_to_the_queue_is_a_new_message(rig: Rig, stream: Stream, way: str) -> None:
    new = await rig.add(retry='{"lost_lease_backoff":{"table_ms":[0]}}')
    (job,) = await rig.claim(lease_ms=1)
    (first,) = stream.pending()
    match way:
        case "release":
            await rig.settle(commands.release(job))
        case "retry":
            await rig.settle(commands.retry(job, JobError("x"), delay_ms=0))
        case "lease":
            async with asyncio.timeout(60):
                while not await Housekeeping(rig.engine).reap():
                    await asyncio.sleep(0.005)
        case "requeue":
            await rig.settle(commands.fail(job, JobError("fatal", retryable=False), rand=0))
            assert stream.entries() == []
            await rig.engine.requeue(new.job_id)
    await rig.sent()
    ((second, fields),) = stream.entries()
    assert second != first
    assert fields["enqueue_id"] == f"{new.job_id}.1"
    assert first not in stream.pending()


async def test_held_jobs_get_their_message_when_they_come_into_line(rig: Rig, stream: Stream) -> None:
    parent = await rig.add()
    child, later = new_job(depends_on=(parent.job_id,)), new_job(delay_ms=3_600_000)
    slots = [new_job(concurrency_key="k") for _ in range(2)]
    await rig.engine.enqueue([child, later, *slots])
    await rig.sent()
    relay = rig.transport.maintenance.relay
    await relay()
    assert set(stream.stays()) == {f"{parent.job_id}.0", f"{slots[0].job_id}.0"}
    (job, in_slot) = await rig.claim(limit=2)
    await rig.settle(commands.succeed(job), commands.succeed(in_slot))
    await rig.engine.store.promote(now=await rig.engine.store.now() + 3_600_000)
    await relay()
    assert set(stream.stays()) == {f"{new.job_id}.0" for new in (child, later, slots[1])}


async def test_a_follow_up_is_published_with_the_move_that_made_it(rig: Rig, stream: Stream) -> None:
    await rig.add()
    (job,) = await rig.claim()
    next_one = new_job()
    await rig.settle(commands.succeed(job)._replace(follow_ups=(next_one,)))
    assert stream.stays() == [f"{next_one.job_id}.0"]


@pytest.mark.parametrize("way", ["succeed", "fail", "dead letter", "cancel", "cancel queued"])
async def test_the_message_goes_when_its_job_has_ended(rig: Rig, stream: Stream, way: str) -> None:
    new = await rig.add(max_attempts=1)
    if way == "cancel queued":
        await rig.engine.cancel(new.job_id)
    else:
        (job,) = await rig.claim()
        assert len(stream.pending()) == 1
        end = {
            "succeed": commands.succeed(job),
            "fail": commands.fail(job, JobError("fatal", retryable=False), rand=0),
            "dead letter": commands.fail(job, JobError("again"), rand=0),
            "cancel": commands.cancel(job),
        }
        assert await rig.settle(end[way]) == [Settled.APPLIED]
    await rig.sent()
    assert (stream.entries(), stream.pending(), stream.known()) == ([], {}, {})


async def test_what_does_not_end_a_job_leaves_its_message_pending(rig: Rig, stream: Stream) -> None:
    await rig.add()
    (job,) = await rig.claim()
    (before,) = stream.pending()
    await rig.settle(commands.progress(job, 50))
    assert await rig.settle(commands.lose_lease(job, rand=0)) == [Settled.STALE]  # it is held
    assert list(stream.pending()) == [before]


async def test_the_end_is_acknowledged_after_its_commit_and_not_before(
    rig: Rig, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.add()
    (job,) = await rig.claim()
    real, seen = rig.engine.store.settle, []

    async def watched(settlements: object, **more: object) -> list[Settled]:
        answers = await real(settlements, **more)  # type: ignore[arg-type]
        await rig.sent()
        seen.append(len(stream.pending()))
        return answers

    monkeypatch.setattr(rig.engine.store, "settle", watched)
    await rig.settle(commands.succeed(job))
    assert seen == [1]
    assert stream.pending() == {}


async def test_an_end_whose_answer_was_lost_is_acknowledged_when_it_is_said_again(rig: Rig, stream: Stream) -> None:
    await rig.add()
    (job,) = await rig.claim()
    await rig.engine.store.settle([commands.succeed(job)])  # and nobody heard of it
    assert len(stream.pending()) == 1
    assert await rig.settle(commands.succeed(job)) == [Settled.REPEATED]
    assert stream.entries() == []


async def test_a_message_that_comes_after_the_end_of_its_job_is_not_kept(
    url: str, redis_url: str, stream: Stream
) -> None:
    async with rigged(url, redis_url) as slow, rigged(url, redis_url) as fast:
        new = new_job()
        answers = await slow.engine.store.enqueue([new])  # committed, and its message is still on the way
        (job,) = await fast.engine.store.claim(ClaimRequest("w"))
        await fast.settle(commands.succeed(job))
        slow.transport.on_enqueue([new], answers)
        await slow.sent()
        assert stream.entries() == []


async def test_nor_is_one_that_comes_after_a_claim_made_it_and_the_end_took_it_away(
    url: str, redis_url: str, stream: Stream
) -> None:
    async with rigged(url, redis_url) as slow, rigged(url, redis_url) as fast:
        new = new_job()
        answers = await slow.engine.store.enqueue([new])
        (job,) = await fast.claim()
        assert len(stream.pending()) == 1
        await fast.settle(commands.succeed(job))
        slow.transport.on_enqueue([new], answers)
        await slow.sent()
        assert (stream.entries(), stream.known()) == ([], {})


async def test_a_worker_may_acknowledge_by_itself(rig: Rig, stream: Stream) -> None:
    for _ in range(2):
        await rig.add()
    first, second = await rig.claim()
    places = await rig.transport.places_of([first, second])
    for job, delete in ((first, False), (second, True)):
        place = places[job.job_id]
        assert place is not None
        stream.redis.xack(place.stream, "workers", place.message_id)
        if delete:
            stream.redis.xdel(place.stream, place.message_id)
    assert await rig.settle(commands.succeed(first), commands.release(second)) == [Settled.APPLIED] * 2
    assert stream.stays() == [f"{second.job_id}.1"]
    assert list(stream.known()) == [f"{second.job_id}.1"]


async def test_a_thousand_jobs_leave_nothing_behind(url: str, redis_url: str, stream: Stream) -> None:
    async with rigged(url, redis_url, NEVER) as a, rigged(url, redis_url, NEVER) as b:

        async def work(rig: Rig) -> int:
            count = 0
            while jobs := await rig.engine.claim(ClaimRequest("w", limit=50)):
                await rig.engine.settle([commands.succeed(job) for job in jobs])
                count += len(jobs)
            return count

        for _ in range(10):
            await a.engine.enqueue([new_job() for _ in range(100)])
            assert sum(await asyncio.gather(work(a), work(b))) == 100
        await asyncio.gather(a.sent(), b.sent())
        assert (stream.entries(), stream.pending(), stream.known()) == ([], {}, {})
    assert stream.redis.memory_usage(stream.key()) < 20_000
