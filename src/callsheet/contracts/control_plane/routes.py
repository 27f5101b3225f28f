"""`/internal/worker/…`: claim, heartbeat, complete, fail and release. The store is the truth; all else is a hint."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import APIRouter
from starlette.requests import Request

from callsheet.http import problems
from callsheet.http.auth import check
from callsheet.http.bodies import documented, read
from callsheet.http.direct import Direct
from callsheet.http.json_text import JsonAnswer
from callsheet.http.site import Site, site_of
from callsheet.kernel import commands
from callsheet.kernel.job import Job, Outcome
from callsheet.kernel.retry import JobError
from callsheet.kernel.settlement import Settlement
from callsheet.kernel.wire import clean, decode, encode
from callsheet.store.protocol import ClaimRequest, Settled

from . import leases
from .leases import Lease
from .models import (
    Beaten,
    ClaimBody,
    Claimed,
    CompleteBody,
    Completed,
    EndBody,
    FailBody,
    Failed,
    HeartbeatBody,
    ReleaseBody,
)
from .waiting import Waiting

LEASE_S = 60.0
BEAT_S = 5.0
PROVISIONAL_S = 10.0  # until the first heartbeat: a worker that never got the answer holds its job no longer
RESULT_BYTES = 1024 * 1024
ENDED_BADLY = frozenset({Outcome.FAILED, Outcome.RETRIED, Outcome.DEAD_LETTERED, Outcome.CANCELED})
ALWAYS = ("unauthorized", "forbidden", "too_many_requests", "store_unavailable", "validation_failed", "body_too_large")
PROVEN = (*ALWAYS, "job_not_found", "lease_lost")
E = TypeVar("E", bound=EndBody)
router = APIRouter(prefix="/internal/worker", tags=["workers"], route_class=Direct)


@router.post(
    "/claim",
    summary="Claim a job",
    response_model=Claimed,
    openapi_extra=documented(ClaimBody),
    responses=problems.responses(*ALWAYS),
)
async def claim(request: Request) -> JsonAnswer:
    """The first job of the streams in their order, at once or within `max_wait_ms`."""
    await check(request, "worker")
    asked = await read(request, ClaimBody)
    site, token = site_of(request), leases.new_token()
    wanted = ClaimRequest(leases.owner(asked.worker_id, token), tuple(asked.streams), 1, round(PROVISIONAL_S * 1000))

    async def alive() -> bool:
        return not site.stopping.is_set() and not await request.is_disconnected()

    jobs = await waiting_of(site).claim(wanted, asked.max_wait_ms / 1000, alive)
    if not jobs:
        return JsonAnswer({"claimed": False})
    if await request.is_disconnected():  # nobody would hear of it: hand it back, unharmed
        await site.engine.settle([commands.release(jobs[0])])
    return JsonAnswer(_claimed(jobs[0], token))


def _claimed(job: Job, token: str) -> dict[str, Any]:
    return {
        "claimed": True,
        "job_id": job.job_id,
        "attempt_id": str(job.claim_version),
        "lease_token": token,
        "stream": job.queue,
        "message_id": f"{job.job_id}-{job.claim_version}",
        "payload": decode(job.payload),
        "lease_ttl_seconds": LEASE_S,
        "heartbeat_interval_seconds": BEAT_S,
        "task": job.kind,
        "attempt": job.attempt_count,
        "max_attempts": job.max_attempts,
        "fence": job.claim_version,
        "cancel": job.cancel_requested_at is not None,
    }


@router.post(
    "/heartbeat",
    summary="Extend a lease",
    response_model=Beaten,
    openapi_extra=documented(HeartbeatBody),
    responses=problems.responses(*PROVEN),
)
async def heartbeat(request: Request) -> JsonAnswer:
    """The answer says whether the job is to be cancelled. A lease that is over is 409 `lease_lost`."""
    await check(request, "worker")
    asked = await read(request, HeartbeatBody)
    engine = site_of(request).engine
    lease = await leases.find(engine, asked.job_id, asked.worker_id, asked.lease_token)
    (beat,) = await engine.heartbeat([lease.job.claim], lease_ms=round(LEASE_S * 1000)) if lease.live else [None]
    if beat is None or not beat.held:
        raise lease.lost()
    if asked.progress is not None:
        await engine.settle([commands.progress(lease.job, asked.progress, asked.message)])
    now = await engine.store.now()
    expires_at = now + round(LEASE_S * 1000)
    answer = {"ok": True, "lease_expires_at": expires_at, "lease_expires_in_ms": round(LEASE_S * 1000)}
    return JsonAnswer({**answer, "cancel": beat.cancel_requested})


@router.post(
    "/complete",
    summary="End an attempt well",
    response_model=Completed,
    openapi_extra=documented(CompleteBody),
    responses=problems.responses(*PROVEN, "payload_too_large"),
)
async def complete(request: Request) -> JsonAnswer:
    """Result, status, attempt and event in one commit; then `ack`. Saying it twice is harmless."""
    site, asked, lease = await _proven(request, CompleteBody)
    result = encode(asked.result, limit_bytes=RESULT_BYTES)
    if lease.attempt.outcome is not Outcome.SUCCEEDED:
        await _settle(site, lease, lambda job: commands.succeed(job, result))
    return JsonAnswer({"ok": True, "ack": True})


@router.post(
    "/fail",
    summary="End an attempt badly",
    response_model=Failed,
    openapi_extra=documented(FailBody),
    responses=problems.responses(*PROVEN),
)
async def fail(request: Request) -> JsonAnswer:
    """By the job's policy it runs again, is a dead letter, or has failed. One that was to be cancelled is cancelled."""
    site, asked, lease = await _proven(request, FailBody)
    details = encode({"stack": clean(asked.error.stack, 8_000)}) if asked.error.stack else "{}"
    error = JobError(asked.error.code, clean(asked.error.message), asked.error.retryable, details)

    def decide(job: Job) -> Settlement:
        if job.cancel_requested_at is not None:
            return commands.cancel(job, job.cancel_reason or "")
        return commands.fail(job, error, rand=random.random())  # noqa: S311 - jitter

    outcome = lease.attempt.outcome
    if outcome not in ENDED_BADLY:
        outcome = (await _settle(site, lease, decide)).outcome
    requeued, dlq = outcome is Outcome.RETRIED, outcome is Outcome.DEAD_LETTERED
    return JsonAnswer({"ok": True, "ack": True, "requeued": requeued, "dlq": dlq})


@router.post(
    "/release",
    summary="Hand a job back",
    response_model=Completed,
    openapi_extra=documented(ReleaseBody),
    responses=problems.responses(*PROVEN),
)
async def release(request: Request) -> JsonAnswer:
    """For a worker that goes down: another takes the job, and no attempt is counted."""
    site, _, lease = await _proven(request, ReleaseBody)
    if lease.attempt.outcome is not Outcome.RELEASED:
        await _settle(site, lease, commands.release)
    return JsonAnswer({"ok": True, "ack": True})


async def _proven(request: Request, model: type[E]) -> tuple[Site, E, Lease]:
    """What a worker says of the end of an attempt, and the lease that its token proves."""
    await check(request, "worker")
    asked, site = await read(request, model), site_of(request)
    lease = await leases.find(site.engine, asked.job_id, asked.worker_id, asked.lease_token, asked.attempt_id)
    return site, asked, lease


async def _settle(site: Site, lease: Lease, decide: Callable[[Job], Settlement]) -> Settlement:
    """End the attempt that a lease is for; raises Problem `lease_lost` when it is over, or ended in another way."""
    if not lease.live:
        raise lease.lost()
    settlement = decide(lease.job)
    (answer,) = await site.engine.settle([settlement])
    if answer is Settled.STALE:
        raise lease.lost()
    return settlement


def waiting_of(site: Site) -> Waiting:
    """The parked claims of a process; they end with it."""
    found = site.parts.get(Waiting)
    if found is None:
        found = site.parts[Waiting] = Waiting(site.engine)
        site.on_stop.append(found.let_go)
    waiting: Waiting = found
    return waiting
