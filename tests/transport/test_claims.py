"""The database decides who has a job; the claim's message follows it into the pending list."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from callsheet.engine.transport import transport
from callsheet.kernel import commands
from callsheet.store.protocol import ClaimRequest
from tests import stores
from tests.servers import RedisServer
from tests.store_driver import new_job
from tests.time_limits import within
from tests.transport.conftest import NEVER, Rig, Stream, rigged


async def test_a_claimed_job_has_a_real_message_that_is_pending(rig: Rig, stream: Stream) -> None:
    new = await rig.add(queue="media")
    (job,) = await rig.engine.claim(ClaimRequest("w", ("media",)))
    place = (await rig.transport.places_of([job]))[new.job_id]
    assert place == (stream.key("media"), stream.entries("media")[0][0])
    assert stream.pending("media") == {place.message_id: rig.transport.wire.me}


async def test_the_claim_of_another_process_takes_the_message_along(url: str, redis_url: str, stream: Stream) -> None:
    async with rigged(url, redis_url) as first, rigged(url, redis_url) as second:
        await first.add()
        assert await first.claim("other") == []
        (job,) = await second.claim()
        assert stream.pending() == {stream.entries()[0][0]: second.transport.wire.me}
        assert await first.transport.places_of([job]) == await second.transport.places_of([job])


async def test_a_message_that_has_not_come_yet_is_made_by_the_claim_and_not_doubled(
    url: str, redis_url: str, stream: Stream
) -> None:
    async with rigged(url, redis_url) as slow, rigged(url, redis_url) as fast:
        new = new_job()
        answers = await slow.engine.store.enqueue([new])
        (job,) = await fast.claim()
        place = (await fast.transport.places_of([job]))[new.job_id]
        assert place is not None
        slow.transport.on_enqueue([new], answers)
        await slow.sent()
        assert [message_id for message_id, _ in stream.entries()] == [place.message_id]


async def test_a_flushed_redis_costs_a_claim_nothing(rig: Rig, stream: Stream) -> None:
    await rig.add()
    stream.redis.flushdb()
    (job,) = await rig.claim()
    place = (await rig.transport.places_of([job]))[job.job_id]
    assert place is not None
    assert list(stream.pending()) == [place.message_id]
    await rig.settle(commands.succeed(job))
    assert stream.entries() == []


async def test_a_job_whose_message_is_gone_is_still_ended_once(rig: Rig, stream: Stream) -> None:
    await rig.add()
    (job,) = await rig.claim()
    stream.redis.delete(stream.key())
    await rig.settle(commands.release(job))
    assert stream.stays() == [f"{job.job_id}.1"]


async def test_a_claim_that_is_told_after_the_end_of_its_job_makes_no_message(
    url: str, redis_url: str, stream: Stream
) -> None:
    async with rigged(url, redis_url) as slow, rigged(url, redis_url) as fast:
        await fast.engine.store.enqueue([new_job()])
        request = ClaimRequest("w")
        jobs = await slow.engine.store.claim(request)  # committed, and what follows is still on the way
        await fast.settle(commands.succeed(jobs[0]))
        slow.transport.on_claim(request, jobs)
        await slow.sent()
        assert await slow.transport.places_of(jobs) == {jobs[0].job_id: None}
        assert stream.entries() == []


@pytest.fixture
def frozen() -> Iterator[RedisServer]:
    """Start a server that a test can suspend; it resumes at the end."""
    with RedisServer.start(settings={"appendonly": "no"}) as server:
        yield server
        os.kill(server.pid, signal.SIGCONT)


async def test_a_redis_that_hangs_delays_neither_commits_nor_claims(
    frozen: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This server's answers have a timeout of one hour."""
    url = f"{frozen.url()}?socket_timeout=3600"
    async with rigged(stores.fresh_url("sqlite"), url, NEVER) as rig:
        await rig.add()
        os.kill(frozen.pid, signal.SIGSTOP)
        jobs = await rig.engine.claim(ClaimRequest("w"))
        async with asyncio.timeout(within(2.5)):
            for _ in range(20):
                await rig.engine.enqueue([new_job()])
                more = await rig.engine.claim(ClaimRequest("w", limit=60))
                assert len(more) == 1
                await rig.engine.settle([commands.succeed(job) for job in more])
        monkeypatch.setattr(transport, "TAKE_S", 0.25)
        async with asyncio.timeout(within(2.5)):
            for _ in range(5):
                assert await rig.transport.places_of(jobs[:1]) == {jobs[0].job_id: None}
        monkeypatch.undo()
        os.kill(frozen.pid, signal.SIGCONT)
        await rig.sent()
        assert (await rig.transport.places_of(jobs[:1]))[jobs[0].job_id] is not None


async def test_while_redis_is_away_a_claim_is_told_so_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "TAKE_S", 3600.0)
    async with rigged(stores.fresh_url("sqlite"), "redis://127.0.0.1:1/0", NEVER) as rig:
        await rig.add()
        (job,) = await rig.engine.claim(ClaimRequest("w"))
        await rig.sent()
        async with asyncio.timeout(within(1.0)):
            for _ in range(100):
                assert await rig.transport.places_of([job]) == {job.job_id: None}
