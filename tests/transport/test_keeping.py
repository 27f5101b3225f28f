"""Relay and audit: lost messages come back, and those that stand for nothing go."""

from __future__ import annotations

import asyncio

import pytest

from callsheet.engine.transport.maintenance import AUDIT
from callsheet.kernel import commands
from callsheet.store.protocol import ClaimRequest
from tests.store_driver import new_job
from tests.transport.conftest import BRISK, NEVER, Rig, Stream, rigged


async def until_gone(stream: Stream, *message_ids: str, queue: str = "default") -> None:
    async with asyncio.timeout(60):
        while {i for i, _ in stream.entries(queue)} & set(message_ids):
            await asyncio.sleep(0.01)


async def test_the_relay_publishes_what_has_no_live_message_and_nothing_else(rig: Rig, stream: Stream) -> None:
    old = [new_job() for _ in range(5)]
    await rig.engine.enqueue(old)
    await rig.sent()
    before = stream.entries()
    assert await rig.transport.maintenance.relay() == 0
    stream.redis.xdel(stream.key(), before[1][0])
    await rig.engine.store.enqueue([lost_job := new_job()])  # its process died before it could publish
    assert await rig.transport.maintenance.relay() == 2
    assert sorted(stream.stays()) == sorted(f"{new.job_id}.0" for new in (*old, lost_job))


async def test_a_whole_line_is_published_again_after_a_flush(rig: Rig, stream: Stream) -> None:
    jobs = [new_job(queue=f"q{n % 3}") for n in range(1_200)]
    await rig.engine.enqueue(jobs)
    await rig.sent()
    stream.redis.flushdb()
    assert await rig.transport.maintenance.relay() == 1_200
    assert sum(len(stream.stays(f"q{n}")) for n in range(3)) == 1_200


async def test_many_relays_publish_a_message_once(url: str, redis_url: str, stream: Stream) -> None:
    async with rigged(url, redis_url) as a, rigged(url, redis_url) as b, rigged(url, redis_url) as c:
        await a.engine.store.enqueue([new_job() for _ in range(100)])
        published = await asyncio.gather(*(rig.transport.maintenance.relay() for rig in (a, b, c)))
        assert sum(published) == 100
        assert len(stream.entries()) == 100


async def test_a_message_of_the_relay_that_came_too_late_is_taken_back(
    rig: Rig, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.engine.store.enqueue([new_job()])
    page = await rig.engine.store.ready_jobs(10)
    (job,) = await rig.engine.store.claim(ClaimRequest("w"))
    await rig.engine.store.settle([commands.succeed(job)])

    async def as_it_was(limit: int, *, cursor: str | None = None) -> object:
        return page

    monkeypatch.setattr(rig.engine.store, "ready_jobs", as_it_was)
    await rig.transport.maintenance.relay()
    assert stream.entries() == []
    assert stream.known() == {}


async def test_turns_let_one_of_many_processes_do_a_chore(url: str, redis_url: str) -> None:
    async with rigged(url, redis_url) as a, rigged(url, redis_url) as b:
        turns = [await rig.transport.wire.run("turn", "test", 60_000, 60_000) for rig in (a, b, a)]
        assert turns == [1, 0, 0]


async def test_garbage_does_no_harm(url: str, redis_url: str, stream: Stream) -> None:
    key = stream.key()
    ids = [
        stream.redis.xadd(key, {"x": "1"}),
        stream.redis.xadd(key, {"job_id": "../../etc", "enqueue_id": "9"}),
        stream.redis.xadd(key, {b"\xff\xfe": b"\x00\xff", "job_id": b"\xff"}),
        stream.redis.xadd(key, {"job_id": new_job().job_id, "enqueue_id": "a\nb"}),
        stream.redis.xadd(key, {"job_id": (ghost := new_job().job_id), "enqueue_id": f"{ghost}.0"}),
    ]
    stream.redis.set(stream.key("strange"), "a string where a stream should be")
    async with rigged(url, redis_url) as rig:
        assert await rig.claim("default", "strange") == []
        await until_gone(stream, *ids)
        new, _ = await rig.add(), await rig.add(queue="strange")
        jobs = await rig.claim("default", "strange")
        assert len(jobs) == 2
        await rig.settle(*(commands.succeed(job) for job in jobs))
        await until_gone(stream, *(i for i, _ in stream.entries()))
    assert stream.known() == {}
    assert stream.redis.get(stream.key("strange")) == "a string where a stream should be"
    assert new.job_id in {job.job_id for job in jobs}


async def test_doubles_and_stale_messages_are_acknowledged_away_when_they_are_read(
    url: str, redis_url: str, stream: Stream
) -> None:
    async with rigged(url, redis_url) as rig:
        new, ended_id, elsewhere = await rig.add(queue="q"), await rig.add(), new_job(queue="another")
        await rig.engine.store.enqueue([elsewhere])
        ((real, fields),) = stream.entries("q")
        (job,) = await rig.claim()
        await rig.settle(commands.succeed(job))
        wrong = [
            stream.redis.xadd(stream.key("q"), fields),
            stream.redis.xadd(stream.key("q"), {"job_id": ended_id.job_id, "enqueue_id": f"{ended_id.job_id}.0"}),
            stream.redis.xadd(stream.key("q"), {"job_id": new.job_id, "enqueue_id": f"{new.job_id}.7"}),
            stream.redis.xadd(stream.key("q"), {"job_id": elsewhere.job_id, "enqueue_id": f"{elsewhere.job_id}.0"}),
        ]
        rig.transport._reader.want(["q"])
        await until_gone(stream, *wrong, queue="q")
        assert [i for i, _ in stream.entries("q")] == [real]
        assert list(stream.pending("q")) == [real]


async def test_a_message_that_another_put_for_a_job_that_waits_is_adopted(rig: Rig, stream: Stream) -> None:
    new = new_job()
    await rig.engine.store.enqueue([new])
    foreign = stream.redis.xadd(stream.key(), {"job_id": new.job_id, "enqueue_id": f"{new.job_id}.0"})
    rig.transport._reader.want(["default"])
    async with asyncio.timeout(60):
        while not stream.known():
            await asyncio.sleep(0.01)
    assert await rig.transport.maintenance.relay() == 0
    (job,) = await rig.claim()
    place = (await rig.transport.places_of([job]))[new.job_id]
    assert place is not None
    assert place.message_id == foreign


async def test_what_dead_processes_left_behind_is_found_by_the_audit(url: str, redis_url: str, stream: Stream) -> None:
    """Ended jobs whose acknowledgement was lost, delivered or not; those that wait or run keep their messages."""
    async with rigged(url, redis_url) as rig:
        waits, _runs, _ended, _unread = [await rig.add(queue=queue) for queue in ("a", "b", "c", "d")]
        (running,) = await rig.claim("b")
        (job,) = await rig.claim("c")
        (unread,) = await rig.engine.store.claim(ClaimRequest("w", ("d",)))
        await rig.engine.store.settle([commands.succeed(job), commands.succeed(unread)])
        await rig.transport.maintenance.audit()
        assert (stream.stays("c"), stream.stays("d")) == ([], [])
        assert stream.stays("a") == [f"{waits.job_id}.0"]
        assert stream.stays("b") == [f"{running.job_id}.0"]
        assert len(stream.pending("b")) == 1
        assert len(stream.known()) == 2


async def test_the_pending_list_of_a_dead_consumer_is_taken_over_page_by_page(rig: Rig, stream: Stream) -> None:
    count = 2 * AUDIT + 50
    await rig.engine.enqueue([new_job() for _ in range(count)])
    await rig.sent()
    stream.redis.xreadgroup("workers", "dead", {stream.key(): ">"}, count=count)
    stream.redis.xgroup_createconsumer(stream.key(), "workers", "gone too")
    waiting = asyncio.create_task(_heard(rig, "default"))
    await asyncio.sleep(0)
    owners = []
    for _ in range(3):
        await rig.transport.maintenance.audit()
        owners.append(sum(owner == rig.transport.wire.me for owner in stream.pending().values()))
    assert owners == [AUDIT, 2 * AUDIT, count]
    assert stream.consumers() == {rig.transport.wire.me}
    await asyncio.wait_for(waiting, 60)  # what still waits is looked for here
    assert len(stream.entries()) == count


async def _heard(rig: Rig, queue: str) -> None:
    """Wait for a hint of the transport's own that names a queue."""
    async for hint in rig.transport.hints():
        if queue in hint.queues:
            return


async def test_an_entry_whose_message_was_deleted_leaves_the_pending_list(rig: Rig, stream: Stream) -> None:
    await rig.add()
    await rig.claim()
    ((message_id, _),) = stream.entries()
    stream.redis.xdel(stream.key(), message_id)
    await rig.transport.maintenance.audit()
    assert stream.pending() == {}


async def test_messages_of_a_stream_that_was_deleted_are_forgotten(rig: Rig, stream: Stream) -> None:
    await rig.add()
    (job,) = await rig.engine.store.claim(ClaimRequest("w"))
    await rig.engine.store.settle([commands.succeed(job)])
    stream.redis.delete(stream.key())
    await rig.transport.maintenance.audit()
    assert stream.known() == {}
    assert stream.redis.smembers("callsheet:queues") == set()


async def test_a_process_that_says_goodbye_leaves_no_consumer(url: str, redis_url: str, stream: Stream) -> None:
    async with rigged(url, redis_url) as rig:
        await rig.add()
        async with rigged(url, redis_url, NEVER) as other:
            assert other.transport.wire.me not in stream.consumers()
            await other.claim()
            assert other.transport.wire.me in stream.consumers()
            assert set(stream.pending().values()) == {other.transport.wire.me}
            async with asyncio.timeout(60):
                while stream.redis.zscore("callsheet:processes", other.transport.wire.me) is None:
                    await asyncio.sleep(0.005)
        await rig.transport.maintenance.audit()
        assert other.transport.wire.me not in stream.consumers()


async def test_the_chores_are_done_without_being_asked(url: str, redis_url: str, stream: Stream) -> None:
    async with rigged(url, redis_url, BRISK) as rig:
        await rig.engine.store.enqueue([new_job()])
        async with asyncio.timeout(60):
            while not stream.entries():
                await asyncio.sleep(0.01)
        (job,) = await rig.engine.store.claim(ClaimRequest("w"))
        await rig.engine.store.settle([commands.succeed(job)])
        await until_gone(stream, *(i for i, _ in stream.entries()))
