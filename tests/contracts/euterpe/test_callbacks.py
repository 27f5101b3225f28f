"""Callbacks are a part of the moves that they tell of, whoever makes the move and on whatever store."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

from callsheet.engine import Engine
from callsheet.engine.housekeeping import Housekeeping
from callsheet.kernel import commands
from callsheet.kernel.callbacks import normalised
from callsheet.kernel.job import Job, NewEvent, OutboxEvent, Status
from callsheet.kernel.retry import JobError
from callsheet.store.protocol import ClaimRequest, OutboxFilter, Settled
from tests.kit import new_job

HOOK = "https://hooks.example.org/transcode"
ASKED = json.dumps({"status_webhook_url": HOOK, "metadata": {"talk": "1"}})
BUSY = JobError("503", "busy", details='{"traceback": "inside"}')
LEASE_MS = 30_000


@pytest.fixture
async def memory() -> AsyncIterator[Engine]:
    """Where the kind of store does not matter."""
    store = Engine.from_url("sqlite::memory:")
    await store.store.migrate()
    async with store:
        yield store


async def claimed(engine: Engine, payload: str = ASKED, **fields: Any) -> Job:
    """A job that a worker has just claimed."""
    new = new_job("transcode", payload=payload, queue="transcode", **{"contract": "euterpe", **fields})
    await engine.enqueue([new])
    return await again(engine)


async def again(engine: Engine) -> Job:
    (job,) = await engine.claim(ClaimRequest("w", ("transcode",), 1, LEASE_MS))
    return job


async def advanced(engine: Engine, job: Job, *stages: str) -> Job:
    for stage in stages:
        job = await engine.settle_one(job, commands.advance(job, stage))
    return job


async def told(engine: Engine, job: Job) -> list[dict[str, Any]]:
    found: list[OutboxEvent] = await engine.store.outbox_find(job_id=job.job_id)
    assert all(event.endpoint == HOOK for event in found)
    assert all(json.loads(event.body)["event_id"] == event.event_id for event in found)
    return sorted((json.loads(event.body) for event in found), key=lambda body: (body["sequence"], body["event_id"]))


async def test_each_move_is_told_once_with_its_status(engine: Engine) -> None:
    job = await advanced(engine, await claimed(engine), "fetching", "processing", "uploading")
    result = json.dumps({"outputs": [{"key": "a.mp3"}]})
    await engine.settle([commands.succeed(job, result)])
    bodies = await told(engine, job)
    assert [body["status"] for body in bodies] == ["fetching", "processing", "uploading", "succeeded"]
    assert [body["type"] for body in bodies] == [f"transcode.{body['status']}" for body in bodies]
    assert len({body["event_id"] for body in bodies}) == 4
    assert bodies[-1]["outputs"] == [{"key": "a.mp3"}]
    assert all("outputs" not in body and body["metadata"] == {"talk": "1"} for body in bodies[:-1])


async def test_sequences_rise_through_attempts_failures_and_requeues(memory: Engine) -> None:
    job = await advanced(memory, await claimed(memory), "fetching", "processing", "uploading")
    moves = [commands.advance(job._replace(stage=""), "fetching")]
    moves += [commands.advance(job._replace(stage=a), b) for a, b in pairwise(("fetching", "processing", "uploading"))]
    failed = commands.fail(job, JobError("x", retryable=False), rand=0.5)
    ended = job._replace(status=Status.FAILED, attempt_started_at=None)
    moves += [failed, commands.requeue(ended)]
    following = job._replace(claim_version=2, stage="")
    moves += [commands.advance(following, "fetching"), commands.retry(following, BUSY, delay_ms=0)]
    bodies = [json.loads(move.outbox[0].body) for move in moves]
    words = ["fetching", "processing", "uploading", "failed", "queued", "fetching", "queued"]
    assert [body["status"] for body in bodies] == words
    assert all(one["sequence"] < other["sequence"] for one, other in pairwise(bodies))
    assert len({body["event_id"] for body in bodies}) == len(bodies)


async def test_progress_that_was_overtaken_costs_no_callback_its_id(memory: Engine) -> None:
    """A worker counts events that were never written, for a later report took their place."""
    job = await advanced(memory, await claimed(memory), "fetching")
    ahead = job._replace(event_seq=job.event_seq + 1)
    await memory.settle_one(ahead, commands.advance(ahead, "processing"))
    later = await memory.store.now() + LEASE_MS + 1
    assert await Housekeeping(memory).reap(now=later) == 1
    assert [body["status"] for body in await told(memory, job)] == ["fetching", "processing", "queued"]


async def test_what_is_no_move_is_not_told(memory: Engine) -> None:
    job = await claimed(memory)
    await memory.settle(
        [commands.progress(job, 5), commands.note(job, NewEvent("log")), commands.checkpoint(job, "a", "1")]
    )
    await memory.settle([commands.refresh(job)])
    assert await told(memory, job) == []


@pytest.mark.parametrize(
    "stages", [(), ("fetching",), ("fetching", "processing"), ("fetching", "processing", "uploading")]
)
async def test_a_retry_and_a_dead_letter_are_told_with_the_normalised_error(
    memory: Engine, stages: tuple[str, ...]
) -> None:
    job = await advanced(memory, await claimed(memory, max_attempts=2), *stages)
    await memory.settle([commands.retry(job, BUSY, delay_ms=0)])
    job = await advanced(memory, await again(memory), *stages)
    await memory.settle([commands.retry(job, BUSY, delay_ms=0)])
    bodies = await told(memory, job)
    assert [body["status"] for body in bodies] == [*stages, "queued", *stages, "dead_letter"]
    ends = [body for body in bodies if body["status"] in {"queued", "dead_letter"}]
    assert [body["error"] for body in ends] == [{"code": "503", "message": "busy"}] * 2
    assert [body["attempt_count"] for body in ends] == [1, 2]


async def test_a_failure_for_good_is_told(memory: Engine) -> None:
    job = await advanced(memory, await claimed(memory), "fetching")
    await memory.settle([commands.fail(job, JobError("not_media", "no", retryable=False), rand=0.5)])
    body = (await told(memory, job))[-1]
    assert (body["status"], body["previous_status"]) == ("failed", "fetching")
    assert body["error"] == {"code": "not_media", "message": "no", "retryable": False}


async def test_a_lost_lease_is_told_by_whoever_notices_it(engine: Engine) -> None:
    job = await advanced(engine, await claimed(engine), "fetching", "processing")
    later = await engine.store.now() + LEASE_MS + 1
    assert await Housekeeping(engine).reap(now=later) == 1
    body = (await told(engine, job))[-1]
    assert (body["status"], body["previous_status"], body["error"]["code"]) == ("queued", "processing", "worker_lost")


async def test_a_move_that_is_fenced_off_tells_nobody(engine: Engine) -> None:
    stale = await advanced(engine, await claimed(engine), "fetching")
    await engine.settle([commands.retry(stale, BUSY, delay_ms=0)])
    await again(engine)
    before = await told(engine, stale)
    fails = commands.fail(stale, JobError("not_media", retryable=False), rand=0.5)
    late = [commands.advance(stale, "processing"), fails]
    assert all(len(move.outbox) == 1 for move in late)
    assert await engine.settle(late) == [Settled.STALE, Settled.STALE]
    assert await told(engine, stale) == before


async def test_a_move_that_is_repeated_is_told_once(engine: Engine) -> None:
    job = await advanced(engine, await claimed(engine), "fetching", "processing", "uploading")
    end = commands.succeed(job, "null")
    assert await engine.settle([end]) == [Settled.APPLIED]
    assert await engine.settle([end]) == [Settled.REPEATED]
    assert [body["status"] for body in await told(engine, job)].count("succeeded") == 1


@pytest.mark.parametrize(
    ("payload", "contract"),
    [
        ("{}", "euterpe"),
        ('{"status_webhook_url": ""}', "euterpe"),
        ('["status_webhook_url"]', "euterpe"),
        (ASKED, "callsheet"),
    ],
)
async def test_who_asked_for_no_callbacks_gets_none(memory: Engine, payload: str, contract: str) -> None:
    job = await claimed(memory, payload, contract=contract)
    job = await advanced(memory, job, "fetching")
    await memory.settle([commands.fail(job, JobError("x", retryable=False), rand=0.5)])
    assert await memory.store.outbox_find(job_id=job.job_id) == []


async def test_a_callback_is_found_by_its_id_and_waits_for_delivery(memory: Engine) -> None:
    job = await advanced(memory, await claimed(memory, requester_id="acme"), "fetching")
    (body,) = await told(memory, job)
    (event,) = await memory.store.outbox_find(where=OutboxFilter(event_id=body["event_id"]))
    assert (event.status, event.requester_id, event.attempt_count) == ("pending", "acme", 0)


def test_an_error_is_shown_without_what_is_inside() -> None:
    assert normalised(BUSY.json()) == {"code": "503", "message": "busy"}
    assert normalised('"a foreign worker wrote this"') == {"code": "error", "message": "a foreign worker wrote this"}
