"""Contract 001: foreign workers that let go of a job before its end.

One puts its job back (XADD of the same three fields, XACK of its own message), one acknowledges early and dies, one
ends its job by events and leaves the hash as it was. None of these jobs stays `running` for ever.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from callsheet.engine import Engine, Housekeeping
from callsheet.kernel import commands
from callsheet.kernel.job import Outcome, Status
from callsheet.store.protocol import ClaimRequest, Settled

from . import (
    KINDS,
    TERMINAL,
    add_event,
    foreign_job,
    fresh_url,
    gateway_job,
    pending,
    plain_client,
    status_of,
    take,
    ttls_of,
    types_of,
)

ONE = ClaimRequest("w1", lease_ms=600_000)
IDLE_MS = 60_000


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest) -> str:
    return fresh_url(request.param)


@pytest_asyncio.fixture
async def engine(url: str) -> AsyncIterator[Engine]:
    async with Engine.from_url(url) as engine:
        yield engine


@pytest_asyncio.fixture
async def client(url: str) -> AsyncIterator[Any]:
    async with plain_client(url) as client:
        yield client


@pytest.fixture(params=["our job", "a foreign job"])
def ours(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "our job")


async def job_at_a_stranger(engine: Engine, client: Any, *, ours: bool, word: str = "running") -> tuple[str, str, Any]:
    """Give a job to a foreign worker and return its messages; the job's id, the message and its fields."""
    if ours:
        ((job_id, *_),) = await engine.enqueue([gateway_job('{"prompt":"hi"}')])
    else:
        job_id = await foreign_job(client, '{"prompt":"hi"}')
    message_id, fields = await take(client)
    assert fields["job_id"] == job_id
    if word != "queued":
        await write(client, job_id, word)
    return job_id, message_id, fields


async def write(client: Any, job_id: str, word: str) -> None:
    seconds, microseconds = await client.time()
    at = str(seconds * 1_000 + microseconds // 1_000)
    await client.hset(f"job:{job_id}", mapping={"status": word, "updated_ts": at})
    await add_event(client, job_id, word)


async def runs_once_more(engine: Engine, client: Any, job_id: str, *, now: int | None = None) -> None:
    """Assert that our worker runs the job and no message remains."""
    (job,) = await engine.claim(ONE, now=now)
    assert (job.job_id, job.kind, json.loads(job.payload)) == (job_id, "chat", {"prompt": "hi"})
    assert await engine.settle([commands.succeed(job, '"ours"')], now=now) == [Settled.APPLIED]
    events = [event async for event in engine.watch(job_id)]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert (events[0].type, events[-1].type) == ("queued", "done")
    found = await engine.get(job_id)
    assert (found.status, found.result, found.event_seq) == (Status.SUCCEEDED, '"ours"', len(events))
    await nothing_is_left(engine, client, Status.SUCCEEDED)


async def nothing_is_left(engine: Engine, client: Any, status: Status) -> None:
    later = await engine.store.now() + 5 * IDLE_MS
    for _ in range(2):
        await Housekeeping(engine).sweep(now=later)
    assert await engine.claim(ONE, now=later) == []
    assert await engine.store.counts() == {"default": {status: 1}}
    assert (await pending(client), await client.xlen("jobs:stream")) == (0, 0)
    assert await client.exists("jobs:leases", "jobs:acknowledged") == 0


# It puts the job back.


@pytest.mark.parametrize("word", ["running", "queued"])
@pytest.mark.parametrize("first", ["XACK", "XADD"])
async def test_a_job_that_a_foreign_worker_puts_back_runs(
    engine: Engine, client: Any, *, ours: bool, first: str, word: str
) -> None:
    job_id, message_id, fields = await job_at_a_stranger(engine, client, ours=ours)
    if word == "queued":
        await write(client, job_id, word)
    if first == "XADD":
        await client.xadd("jobs:stream", fields)
    await client.xack("jobs:stream", "workers", message_id)
    if first == "XACK":
        await client.xadd("jobs:stream", fields)
    await runs_once_more(engine, client, job_id)


async def test_a_copy_that_comes_before_the_acknowledgement_runs_after_it(
    engine: Engine, client: Any, *, ours: bool
) -> None:
    """The copy wakes our worker, which may overtake the writer's next command."""
    job_id, message_id, fields = await job_at_a_stranger(engine, client, ours=ours)
    await client.xadd("jobs:stream", fields)
    assert await engine.claim(ONE) == [], "that worker may as well be running it"
    await client.xack("jobs:stream", "workers", message_id)
    await Housekeeping(engine).sweep()
    await runs_once_more(engine, client, job_id)


async def test_a_copy_of_a_job_that_a_foreign_worker_runs_does_not_run(
    engine: Engine, client: Any, *, ours: bool
) -> None:
    job_id, message_id, fields = await job_at_a_stranger(engine, client, ours=ours)
    await client.xadd("jobs:stream", fields)
    for _ in range(2):
        assert await engine.claim(ONE) == []
        await Housekeeping(engine).sweep()
    await write(client, job_id, "done")
    await client.xack("jobs:stream", "workers", message_id)
    await Housekeeping(engine).sweep()
    assert await engine.claim(ONE) == []
    assert await types_of(client, job_id) == ["queued", "running", "done"]


async def test_a_copy_of_a_job_that_our_worker_runs_does_not_run(engine: Engine, client: Any) -> None:
    ((job_id, *_),) = await engine.enqueue([gateway_job('{"prompt":"hi"}')])
    (job,) = await engine.claim(ONE)
    await client.xadd("jobs:stream", {"job_id": job_id, "task": "chat", "payload": '{"prompt":"hi"}'})
    assert await engine.claim(ONE) == []
    assert not await client.hexists(f"job:{job_id}", "again"), "our own workers put nothing back this way"
    assert await engine.settle([commands.succeed(job)]) == [Settled.APPLIED]
    await nothing_is_left(engine, client, Status.SUCCEEDED)


async def test_a_copy_of_a_job_that_waits_for_its_time_does_not_run_before_it(engine: Engine, client: Any) -> None:
    ((job_id, *_),) = await engine.enqueue([gateway_job('{"prompt":"hi"}', delay_ms=IDLE_MS)])
    await client.xadd("jobs:stream", {"job_id": job_id, "task": "chat", "payload": '{"prompt":"hi"}'})
    assert await engine.claim(ONE) == []
    await runs_once_more(engine, client, job_id, now=await engine.store.now() + IDLE_MS)


# It acknowledges early and dies.


@pytest.mark.parametrize("word", ["running", "queued"])
async def test_a_job_that_was_acknowledged_too_early_runs_after_the_idle_time(
    engine: Engine, client: Any, *, ours: bool, word: str
) -> None:
    job_id, message_id, _ = await job_at_a_stranger(engine, client, ours=ours, word=word)
    await client.xack("jobs:stream", "workers", message_id)
    now = await engine.store.now()
    await Housekeeping(engine).sweep(now=now)
    await Housekeeping(engine).sweep(now=now + IDLE_MS // 2)
    assert await engine.claim(ONE, now=now + IDLE_MS // 2) == [], "its worker may be at it"
    assert (await Housekeeping(engine).sweep(now=now + IDLE_MS + 1_000)).reaped == 1
    later = now + 2 * IDLE_MS
    (job,) = await engine.claim(ONE, now=later)
    assert (job.job_id, job.lease_losses) == (job_id, 1)
    await engine.settle([commands.succeed(job)], now=later)
    lost_job, winners = await engine.store.attempts(job_id)
    assert (lost_job.outcome, winners.outcome) == (Outcome.LEASE_LOST, Outcome.SUCCEEDED)
    await nothing_is_left(engine, client, Status.SUCCEEDED)


async def test_a_job_whose_message_was_deleted_too_early_runs_after_the_idle_time(engine: Engine, client: Any) -> None:
    job_id, message_id, _ = await job_at_a_stranger(engine, client, ours=True)
    await client.xack("jobs:stream", "workers", message_id)
    await client.xdel("jobs:stream", message_id)
    now = await engine.store.now()
    await Housekeeping(engine).sweep(now=now)
    assert (await Housekeeping(engine).sweep(now=now + IDLE_MS + 1_000)).reaped == 1
    await runs_once_more(engine, client, job_id, now=now + 2 * IDLE_MS)


async def test_a_worker_that_acknowledged_early_and_still_writes_keeps_its_job(
    engine: Engine, client: Any, *, ours: bool
) -> None:
    job_id, message_id, _ = await job_at_a_stranger(engine, client, ours=ours)
    await client.xack("jobs:stream", "workers", message_id)
    now = await engine.store.now()
    await Housekeeping(engine).sweep(now=now)
    for beat in range(1, 4):
        at = now + beat * (IDLE_MS - 1_000)
        event = {"type": "token", "ts": str(at), "step": "w", "data": "{}"}
        await client.xadd(f"job:{job_id}:events", event, id=f"{at}-0")
        assert (await Housekeeping(engine).sweep(now=at + 1_000)).reaped == 0
    await write(client, job_id, "done")
    await Housekeeping(engine).sweep(now=at + 2_000)
    assert await engine.claim(ONE, now=at + 3 * IDLE_MS) == []
    assert await client.exists("jobs:leases") == 0


async def test_an_early_acknowledgement_of_nonsense_stops_no_sweep(engine: Engine, client: Any) -> None:
    for status, updated in (("running", "9e14"), ("", "soon"), ("RUNNING", "")):
        job_id = await foreign_job(client, changed={"status": status, "updated_ts": updated})
        message_id, _ = await take(client)
        await client.xack("jobs:stream", "workers", message_id)
    now = await engine.store.now()
    await Housekeeping(engine).sweep(now=now)
    assert (await Housekeeping(engine).sweep(now=now + 2 * IDLE_MS)).reaped == 3
    assert (await engine.get(job_id)).status is Status.QUEUED


# It ends its job by events alone.


@pytest.mark.parametrize("is_acknowledged", [True, False])
@pytest.mark.parametrize("word", TERMINAL)
async def test_a_job_that_was_ended_by_its_events_has_ended(
    engine: Engine, client: Any, *, ours: bool, word: str, is_acknowledged: bool
) -> None:
    job_id, message_id, _ = await job_at_a_stranger(engine, client, ours=ours)
    await add_event(client, job_id, word, data='{"text":"hello"}')
    now = await engine.store.now()
    if is_acknowledged:
        await client.xack("jobs:stream", "workers", message_id)
    else:
        await Housekeeping(engine).sweep()
        assert await status_of(client, job_id) == "running", "its worker may be about to write it"
        await client.xclaim("jobs:stream", "workers", "stranger", 0, [message_id], idle=2 * IDLE_MS)
    await Housekeeping(engine).sweep()
    job = await engine.get(job_id)
    assert await status_of(client, job_id) == word
    assert job.status is {"done": Status.SUCCEEDED, "error": Status.FAILED, "canceled": Status.CANCELED}[word]
    assert json.loads(job.result or "null") == ({"text": "hello"} if word == "done" else None)
    assert json.loads(job.error or "null") == ({"text": "hello"} if word == "error" else None)
    assert await types_of(client, job_id) == ["queued", "running", word], "and once"
    assert all(0 < ttl <= 600 for ttl in await ttls_of(client, job_id))
    assert await engine.claim(ONE, now=now + IDLE_MS) == []
    assert (await pending(client), await client.xlen("jobs:stream")) == (0, 0)


async def test_an_event_does_not_overwrite_the_result_in_the_hash(engine: Engine, client: Any) -> None:
    job_id, message_id, _ = await job_at_a_stranger(engine, client, ours=True)
    await client.hset(f"job:{job_id}", "result", '"mine"')
    await add_event(client, job_id, "done", data='{"text":"other"}')
    await client.xack("jobs:stream", "workers", message_id)
    await Housekeeping(engine).sweep()
    job = await engine.get(job_id)
    assert (job.status, job.result) == (Status.SUCCEEDED, '"mine"')
