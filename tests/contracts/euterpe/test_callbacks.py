"""Callbacks commit with the move that they report, for every mover and store."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any, cast

import pytest

from callsheet.engine import Engine
from callsheet.engine.housekeeping import Housekeeping
from callsheet.kernel import commands
from callsheet.kernel.callbacks import claim_callback
from callsheet.kernel.contracts.euterpe import error_for_clients
from callsheet.kernel.job import Delivery, Job, NewEvent, OutboxEvent, Status
from callsheet.kernel.retry import JobError
from callsheet.kernel.settlement import OutboxSettlement, Settlement
from callsheet.store.outbox import OutboxFilter
from callsheet.store.protocol import ClaimRequest, Settled
from callsheet.store.sqlite import SqliteStore
from tests.store_driver import new_job

HOOK = "https://hooks.example.org/transcode"
ASKED = json.dumps({"status_webhook_url": HOOK, "metadata": {"talk": "1"}})
BUSY = JobError("503", "busy", details='{"traceback": "inside"}')
LEASE_MS = 30_000


@pytest.fixture
async def memory() -> AsyncIterator[Engine]:
    """An in-memory engine, for tests independent of the store."""
    store = Engine.from_url("sqlite::memory:")
    await store.store.migrate()
    async with store:
        yield store


async def claimed(engine: Engine, payload: str = ASKED, **fields: Any) -> Job:
    """Return a newly claimed job."""
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
    results: list[OutboxEvent] = await engine.store.outbox_find(job_id=job.job_id)
    assert all(event.endpoint == HOOK for event in results)
    assert all(json.loads(event.body)["event_id"] == event.event_id for event in results)
    return sorted((json.loads(event.body) for event in results), key=lambda body: (body["sequence"], body["event_id"]))


async def test_each_move_is_told_once_with_its_status(engine: Engine) -> None:
    job = await advanced(engine, await claimed(engine), "fetching", "processing", "uploading")
    result = json.dumps({"outputs": [{"key": "a.mp3"}]})
    await engine.settle([commands.succeed(job, result)])
    bodies = await told(engine, job)
    words = ["claimed", "fetching", "processing", "uploading", "succeeded"]
    assert [body["status"] for body in bodies] == words
    assert [body["previous_status"] for body in bodies] == ["queued", *words[:-1]]
    assert [body["type"] for body in bodies] == [f"transcode.{body['status']}" for body in bodies]
    assert len({body["event_id"] for body in bodies}) == 5
    assert bodies[-1]["outputs"] == [{"key": "a.mp3"}]
    assert all("outputs" not in body and body["metadata"] == {"talk": "1"} for body in bodies[:-1])


async def test_sequences_rise_through_attempts_failures_and_requeues(memory: Engine) -> None:
    job = await advanced(memory, await claimed(memory), "fetching", "processing", "uploading")
    moves: list[Settlement] = [commands.advance(job._replace(stage=""), "fetching")]
    moves += [commands.advance(job._replace(stage=a), b) for a, b in pairwise(("fetching", "processing", "uploading"))]
    failed = commands.fail(job, JobError("x", retryable=False), rand=0.5)
    ended_job = job._replace(status=Status.FAILED, attempt_started_at=None)
    moves += [failed, commands.requeue(ended_job)]
    following = job._replace(claim_version=2, stage="")
    claim = claim_callback(following)
    assert claim is not None
    moves += [Settlement(job.job_id, 2, Status.RUNNING, Status.RUNNING, outbox=(claim,))]
    moves += [commands.advance(following, "fetching")]
    moves += [commands.retry(following._replace(stage="fetching"), BUSY, delay_ms=0)]
    last = job._replace(claim_version=3, stage="fetching", attempt_count=job.max_attempts)
    moves += [commands.retry(last, BUSY, delay_ms=0)]
    bodies = [json.loads(event.body) for move in moves for event in move.outbox]
    words = ["fetching", "processing", "uploading", "failed", "queued", "claimed", "fetching", "failed", "queued"]
    words += ["failed", "dead_letter"]
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
    assert [body["status"] for body in await told(memory, job)] == ["claimed", "fetching", "processing", "queued"]


async def test_what_is_no_move_is_not_told(memory: Engine) -> None:
    job = await claimed(memory)
    await memory.settle(
        [commands.progress(job, 5), commands.note(job, NewEvent("log")), commands.checkpoint(job, "a", "1")]
    )
    await memory.settle([commands.refresh(job)])
    assert [body["status"] for body in await told(memory, job)] == ["claimed"]


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
    assert [body["status"] for body in bodies] == [
        *("claimed", *stages, "failed", "queued"),
        *("claimed", *stages, "failed", "dead_letter"),
    ]
    ends = [body for body in bodies if body["status"] in {"failed", "queued", "dead_letter"}]
    before = (stages or ("claimed",))[-1]
    assert [body["previous_status"] for body in ends] == [before, "failed"] * 2
    assert [body["error"] for body in ends] == [{"code": "503", "message": "busy"}] * 4
    assert [body["attempt_count"] for body in ends] == [1, 1, 2, 2]


async def test_the_failed_state_is_told_before_a_retry_and_before_a_dead_letter(engine: Engine) -> None:
    job = await advanced(engine, await claimed(engine, max_attempts=2), "fetching")
    await engine.settle([commands.retry(job, BUSY, delay_ms=0)])
    job = await again(engine)
    await engine.settle([commands.retry(job, BUSY, delay_ms=0)])
    words = [(body["previous_status"], body["status"]) for body in await told(engine, job)]
    assert words == [
        *(("queued", "claimed"), ("claimed", "fetching"), ("fetching", "failed"), ("failed", "queued")),
        *(("queued", "claimed"), ("claimed", "failed"), ("failed", "dead_letter")),
    ]


async def test_a_fatal_error_on_the_last_attempt_is_a_dead_letter(engine: Engine) -> None:
    job = await advanced(engine, await claimed(engine, max_attempts=1), "fetching")
    await engine.settle([commands.fail(job, JobError("not_media", "no", retryable=False), rand=0.5)])
    assert (await engine.get(job.job_id)).status is Status.DEAD_LETTER
    assert [body["status"] for body in await told(engine, job)] == ["claimed", "fetching", "failed", "dead_letter"]


async def test_a_lease_that_is_lost_for_the_last_time_is_told_as_failed_and_as_dead_letter(engine: Engine) -> None:
    job = await advanced(engine, await claimed(engine, max_attempts=1), "fetching")
    assert await Housekeeping(engine).reap(now=await engine.store.now() + LEASE_MS + 1) == 1
    assert [body["status"] for body in await told(engine, job)] == ["claimed", "fetching", "failed", "dead_letter"]


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


async def test_a_claim_is_told_before_its_job_is_handed_out(engine: Engine) -> None:
    job = await claimed(engine)
    (body,) = await told(engine, job)
    assert (body["status"], body["previous_status"], body["metadata"]) == ("claimed", "queued", {"talk": "1"})
    assert (body["attempt_count"], body["event_id"]) == (1, f"evt_{job.job_id.replace('-', '')}_1_claimed")


async def test_a_claim_of_the_store_alone_is_told_with_the_time_of_the_claim(engine: Engine) -> None:
    """Only the store's own verb runs: whoever dies after it can leave no claim untold."""
    new = new_job("transcode", payload=ASKED, queue="transcode", contract="euterpe", requester_id="acme")
    plain = new_job("transcode", payload="{}", queue="transcode", contract="euterpe")
    other = new_job("other", payload=ASKED, queue="transcode")
    await engine.enqueue([new, plain, other])
    jobs = await engine.store.claim(ClaimRequest("w", ("transcode",), 10, LEASE_MS))
    by_id = {job.job_id: job for job in jobs}
    assert set(by_id) == {new.job_id, plain.job_id, other.job_id}
    (event,) = await engine.store.outbox_find()
    assert (event.job_id, event.requester_id, event.endpoint) == (new.job_id, "acme", HOOK)
    assert event.destination == "https://hooks.example.org"
    job = await engine.get(new.job_id)
    assert json.loads(event.body) == {
        "event_id": f"evt_{new.job_id.replace('-', '')}_1_claimed",
        "type": "transcode.claimed",
        "job_id": new.job_id,
        "sequence": 6,
        "status": "claimed",
        "previous_status": "queued",
        "attempt_count": 1,
        "max_attempts": job.max_attempts,
        "progress": 0,
        "metadata": {"talk": "1"},
        "occurred_at": job.started_at,
    }


@pytest.mark.parametrize("start", [True, False])
async def test_every_claim_is_told_alike_whoever_is_asked_for(engine: Engine, *, start: bool) -> None:
    metadata = {"a": 'quote " and \\ and ü', "b": "", "c": "[]"}
    payload = json.dumps({"status_webhook_url": f"{HOOK}?x=1", "metadata": metadata})
    new = new_job("transcode", payload=payload, queue="q-1", contract="euterpe", requester_id="acme", max_attempts=3)
    await engine.enqueue([new])
    request = ClaimRequest("w", ("q-0", "q-1"), 5, LEASE_MS, start=start, tenants=frozenset({"acme"}))
    (job,) = await engine.store.claim(request)
    (event,) = await engine.store.outbox_find(job_id=job.job_id)
    body = json.loads(event.body)
    assert (body["attempt_count"], body["max_attempts"], body["metadata"]) == (int(start), 3, metadata)
    assert body["occurred_at"] == job.updated_at
    expected = claim_callback(job)
    assert expected is not None
    assert body == json.loads(expected.body)


@pytest.mark.parametrize("ends", ["lost", "retried", "released", "failed"])
async def test_a_claim_that_an_older_version_did_not_tell_is_told_by_the_next_move(memory: Engine, ends: str) -> None:
    engine = memory
    job = await claimed(engine, "{}")
    job = job._replace(payload=ASKED)
    assert await told(engine, job) == []
    store = cast("SqliteStore", engine.store)
    await store._writer.run(  # as the older version has left it
        lambda connection: connection.execute("UPDATE inbox_jobs SET payload = ?1", (ASKED,)).fetchall()
    )
    match ends:
        case "lost":
            assert await Housekeeping(engine).reap(now=await engine.store.now() + LEASE_MS + 1) == 1
        case "retried":
            await engine.settle([commands.retry(job, BUSY, delay_ms=0)])
        case "released":
            await engine.settle([commands.release(job)])
        case _:
            await engine.settle([commands.fail(job, JobError("x", retryable=False), rand=0.5)])
    words = {"failed": ["failed"], "retried": ["failed", "queued"]}.get(ends, ["queued"])
    assert [body["status"] for body in await told(engine, job)] == ["claimed", *words]


async def test_a_claim_that_was_told_is_not_told_again_by_the_next_move(engine: Engine) -> None:
    job = await claimed(engine)
    before = await told(engine, job)
    assert await engine.settle([commands.retry(job, BUSY, delay_ms=0)]) == [Settled.APPLIED]
    bodies = await told(engine, job)
    assert [body["status"] for body in bodies] == ["claimed", "failed", "queued"]
    assert bodies[:1] == before


async def test_a_stage_whose_answer_was_lost_is_known_when_it_is_written_again(engine: Engine) -> None:
    job = await claimed(engine)
    move = commands.advance(job, "fetching")
    assert await engine.settle([move]) == [Settled.APPLIED]
    before = (await engine.get(job.job_id), await told(engine, job))
    assert await engine.settle([move]) == [Settled.REPEATED]
    assert (await engine.get(job.job_id), await told(engine, job)) == before
    await engine.settle_one(job, commands.retry(job._replace(stage="fetching"), BUSY, delay_ms=0))
    assert await engine.settle([move]) == [Settled.STALE]


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
    *_, body = await told(memory, job)
    (event,) = await memory.store.outbox_find(where=OutboxFilter(event_id=body["event_id"]))
    assert (event.status, event.requester_id, event.attempt_count) == ("pending", "acme", 0)


def test_an_error_is_shown_without_what_is_inside() -> None:
    assert error_for_clients(BUSY.json()) == {"code": "503", "message": "busy"}
    assert error_for_clients('"a foreign worker wrote this"') == {
        "code": "error",
        "message": "a foreign worker wrote this",
    }


async def test_a_callback_tells_when_its_move_was_and_not_when_it_is_sent(engine: Engine) -> None:
    """By the store's clock: the times of the job's own events, also where the clock has stepped back."""
    await engine.enqueue([new_job("transcode", payload=ASKED, queue="transcode", contract="euterpe")])
    begin = await engine.store.now()
    request = ClaimRequest("w", ("transcode",), 1, LEASE_MS)
    (job,) = await engine.store.claim(request, now=begin + 1_000)
    for stage, at in (("fetching", 2_000), ("processing", 1_500), ("uploading", 4_000)):
        job = await engine.settle_one(job, commands.advance(job, stage), now=begin + at)
    await engine.settle([commands.retry(job, BUSY, delay_ms=0)], now=begin + 5_000)
    bodies = await told(engine, job)
    words = ["claimed", "fetching", "processing", "uploading", "failed", "queued"]
    assert [body["status"] for body in bodies] == words
    times = [body["occurred_at"] - begin for body in bodies]
    assert times == [1_000, 2_000, 2_000, 4_000, 5_000, 5_000]
    events = await engine.store.events({job.job_id: 0}, 100)
    assert sorted({body["occurred_at"] for body in bodies}) == sorted({event.ms for event in events[1:]})
    frozen = [event.body for event in await engine.store.outbox_find(job_id=job.job_id)]
    due = await engine.store.outbox_claim("d", limit=10, lease_ms=1_000, now=begin + 6_000)
    again = [OutboxSettlement(e.event_id, e.claim_version, Delivery.PENDING, 1_000) for e in due]
    assert await engine.store.outbox_settle(again, now=begin + 7_000) == [Settled.APPLIED] * 6
    retried_job = await engine.store.outbox_claim("d", limit=10, lease_ms=1_000, now=begin + 9_000)
    assert sorted(event.body for event in retried_job) == sorted(frozen)
