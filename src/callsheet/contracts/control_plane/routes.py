"""`/internal/worker/…`: claim, heartbeat, complete, fail and release, and the same for many jobs in one request.

The store decides; hints only save waiting time.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.requests import Request

from callsheet.http import problems
from callsheet.http.json_bodies import JsonAnswer, request_body
from callsheet.http.problems import Problem
from callsheet.http.routing import RawRoute
from callsheet.http.state import ServerState, state_of
from callsheet.kernel import commands
from callsheet.kernel.job import Claim
from callsheet.kernel.wire import decode
from callsheet.store.protocol import HeartbeatResult

from . import logs, versions
from .binding import Holder, WorkerIdentity, seen, worker_of
from .claims import Claimer, terms_of, waiting_of
from .leases import Lease, Proof, prove, prove_one
from .models import (
    Beaten,
    BeatenAll,
    Checkpoints,
    CheckpointsBody,
    ClaimBody,
    Claimed,
    CompleteBody,
    Completed,
    EndBody,
    FailBody,
    Failed,
    HeartbeatBody,
    HeartbeatsBody,
    MoveBody,
    MovedAll,
    MovesBody,
    ReleaseBody,
    UncheckedMoves,
)
from .moves import apply, apply_one, lost_problem
from .tolerant import read_report, validate

__all__ = ["router", "waiting_of"]
ALWAYS = ("unauthorized", "forbidden", "too_many_requests", "store_unavailable", "validation_failed", "body_too_large")
PROVEN = (*ALWAYS, "job_not_found", "lease_lost")
B = TypeVar("B", bound=BaseModel)
router = APIRouter(prefix="/internal/worker", tags=["workers"], route_class=RawRoute)


async def _read(request: Request, model: type[B]) -> tuple[ServerState, WorkerIdentity, B]:
    """Return the site, the worker identity and the parsed body of a worker's request."""
    who = await worker_of(request)
    return state_of(request), who, await read_report(request, model)


@router.post(
    "/claim",
    summary="Claim jobs",
    response_model=Claimed,
    openapi_extra=request_body(ClaimBody),
    responses=problems.responses(*ALWAYS, "upgrade_required"),
)
async def claim(request: Request) -> JsonAnswer:
    """Claim the first due jobs of the streams, in stream order, at once or within `max_wait_ms`."""
    state, who, body = await _read(request, ClaimBody)
    protocol = versions.check(versions.protocol_of(request, body.protocol))
    await seen(state, who.holder(body.worker_id), body.labels, request.headers.get("user-agent", "")[:100])
    answer = await Claimer(request, state, body, who).run()
    return JsonAnswer({**answer, "protocol": versions.CURRENT} if protocol > 1 else answer)


@router.post(
    "/heartbeat",
    summary="Extend a lease",
    response_model=Beaten,
    openapi_extra=request_body(HeartbeatBody),
    responses=problems.responses(*PROVEN),
)
async def heartbeat(request: Request) -> JsonAnswer:
    """Extend a lease. A true `cancel` in the answer asks the worker to stop; an ended lease is 409 `lease_lost`."""
    state, who, body = await _read(request, HeartbeatBody)
    worker, proof = who.holder(body.worker_id), Proof(body.job_id, body.lease_token)
    lease = await prove_one(state.engine, worker, proof)
    beat = await _beat(state, [lease])
    log_answer = await _report(state, lease, body)
    if body.wait_ms and not beat[0] and not who.draining:
        await _wait(state, [lease], body.wait_ms, who.tenants)
        beat = await _beat(state, [await prove_one(state.engine, worker, proof)])
    terms = terms_of(state)
    lease_ms = terms.silence_ms if beat[0] else terms.lease_ms
    expires_at = await state.engine.store.now() + lease_ms
    answer = {"ok": True, "lease_expires_at": expires_at, "lease_expires_in_ms": lease_ms, "cancel": beat[0]}
    return JsonAnswer({**answer, "drain": who.draining, **log_answer})


async def _beat(state: ServerState, leases: list[Lease]) -> list[bool]:
    """Extend the leases; returns a `cancel` flag per lease. Raises Problem if a lease has ended."""
    claims = [lease.job.claim for lease in leases if lease.live]
    beats = await _extend(state, claims) if len(claims) == len(leases) else []
    if not beats or not all(beat.held for beat in beats):
        raise next((lease.lost_problem() for lease in leases if not lease.live), leases[0].lost_problem())
    return [beat.cancel_requested for beat in beats]


async def _extend(state: ServerState, claims: list[Claim]) -> list[HeartbeatResult]:
    terms = terms_of(state)
    return await state.engine.heartbeat(claims, lease_ms=terms.lease_ms, silence_ms=terms.silence_ms)


async def _report(state: ServerState, lease: Lease, body: HeartbeatBody) -> dict[str, Any]:
    """Write a heartbeat's stage, progress and log piece; returns the answer's log fields."""
    moves = []
    if body.stage is not None and body.stage != lease.job.stage:
        moves.append(commands.advance(lease.job, body.stage))
    if body.progress is not None:
        moves.append(commands.progress(lease.job, body.progress, body.message))
    answer: dict[str, Any] = {}
    if body.log is not None:
        more, answer = await logs.append(state.engine, lease, body.log)
        moves += [more] if more is not None else []
    if moves:
        await state.engine.settle(moves)
    return answer


async def _wait(state: ServerState, leases: list[Lease], wait_ms: int, tenants: frozenset[str] | None) -> None:
    """Wait until a job is cancelled, a lease is lost or the time is over; other changes do not end the wait."""
    clock = asyncio.get_running_loop().time
    until, ids = clock() + wait_ms / 1000, [lease.job.job_id for lease in leases]
    while (left_s := until - clock()) > 0 and not state.stopping.is_set():
        if not await waiting_of(state).news(frozenset(ids), left_s, tenants):
            return
        jobs = await state.engine.store.get(ids)
        for job, lease in zip(jobs, leases, strict=True):
            if job is None or job.cancel_requested_at is not None or job.claim != lease.job.claim:
                return


@router.post(
    "/heartbeats",
    summary="Extend many leases",
    response_model=BeatenAll,
    openapi_extra=request_body(HeartbeatsBody),
    responses=problems.responses(*ALWAYS),
)
async def heartbeats(request: Request) -> JsonAnswer:
    """Extend all leases of a worker in one write. With `wait_ms` the answer comes once a job is cancelled or lost."""
    state, who, body = await _read(request, HeartbeatsBody)
    worker, proofs = who.holder(body.worker_id), [Proof(p.job_id, p.lease_token) for p in body.leases]
    await seen(state, worker, running=len(proofs))
    answers = await _beat_all(state, worker, proofs)
    if body.wait_ms and not who.draining and all(answer["ok"] and not answer["cancel"] for answer in answers):
        leases = [lease for lease in await prove(state.engine, worker, proofs) if isinstance(lease, Lease)]
        await _wait(state, leases, body.wait_ms, who.tenants)
        answers = await _beat_all(state, worker, proofs)
    lease_ms = terms_of(state).lease_ms
    return JsonAnswer({"ok": True, "leases": answers, "lease_expires_in_ms": lease_ms, "drain": who.draining})


async def _beat_all(state: ServerState, worker: Holder, proofs: list[Proof]) -> list[dict[str, Any]]:
    leases = await prove(state.engine, worker, proofs)
    live = [lease for lease in leases if isinstance(lease, Lease) and lease.live]
    beats = await _extend(state, [lease.job.claim for lease in live]) if live else []
    held = {lease.job.job_id: beat for lease, beat in zip(live, beats, strict=True) if beat.held}
    answers = []
    for proof, lease in zip(proofs, leases, strict=True):
        beat = held.get(proof.job_id) if isinstance(lease, Lease) and lease.live else None
        if beat is not None:
            answers.append({"job_id": proof.job_id, "ok": True, "cancel": beat.cancel_requested})
        else:
            code = lease.code if isinstance(lease, Problem) else "lease_lost"
            answers.append({"job_id": proof.job_id, "ok": False, "cancel": False, "code": code})
    return answers


@router.post(
    "/moves",
    summary="Say many things of many jobs",
    response_model=MovedAll,
    openapi_extra=request_body(MovesBody),
    responses=problems.responses(*ALWAYS),
)
async def moves(request: Request) -> JsonAnswer:
    """Write progress, stages, events, checkpoints, logs and ends of jobs in one write, in order; each has an answer."""
    state, who, body = await _read(request, UncheckedMoves)
    reports = [validate(MoveBody, move) for move in body.moves]
    if (refusals := [move for move in reports if isinstance(move, Problem)]) and len(refusals) == len(reports):
        raise refusals[0]
    answers = await apply(state, who.holder(body.worker_id), reports)
    bodies = [_refusal(a) if isinstance(a, Problem) else a for a in answers]
    return JsonAnswer({"ok": all(a["ok"] for a in bodies), "answers": bodies, "drain": who.draining})


def _refusal(problem: Problem) -> dict[str, Any]:
    return {**problem.more, "ok": False, "code": problem.code, "detail": problem.detail}


async def _end(request: Request, model: type[EndBody], do: str) -> tuple[dict[str, Any], bool]:
    """End one attempt through the code path of `/moves`; returns the answer and the drain flag. Raises Problem."""
    state, who, body = await _read(request, model)
    fields = body.model_dump(exclude={"worker_id", "stream", "message_id"})
    move = MoveBody.model_validate({**fields, "do": do}, strict=False)
    return await apply_one(state, who.holder(body.worker_id), move), who.draining


@router.post(
    "/complete",
    summary="End an attempt well",
    response_model=Completed,
    openapi_extra=request_body(CompleteBody),
    responses=problems.responses(*PROVEN, "payload_too_large", "log_incomplete", "artifact_missing", "quota_exceeded"),
)
async def complete(request: Request) -> JsonAnswer:
    """Commit result, status, attempt and event in one transaction, then answer `ack`. Repeating this is harmless."""
    answer, draining = await _end(request, CompleteBody, "complete")
    return JsonAnswer({"ok": True, "ack": answer["ack"], **({"drain": True} if draining else {})})


@router.post(
    "/fail",
    summary="End an attempt badly",
    response_model=Failed,
    openapi_extra=request_body(FailBody),
    responses=problems.responses(*PROVEN),
)
async def fail(request: Request) -> JsonAnswer:
    """The job's policy decides: retry, dead letter or failure. A job whose cancellation was requested is cancelled."""
    answer, draining = await _end(request, FailBody, "fail")
    body_of_end = {"ok": True, "ack": True, "requeued": answer["requeued"], "dlq": answer["dlq"]}
    return JsonAnswer({**body_of_end, **({"drain": True} if draining else {})})


@router.post(
    "/release",
    summary="Hand a job back",
    response_model=Completed,
    openapi_extra=request_body(ReleaseBody),
    responses=problems.responses(*PROVEN),
)
async def release(request: Request) -> JsonAnswer:
    """Hand a job back because the worker stops or cannot run the job. Another worker takes it; no attempt counts."""
    _, draining = await _end(request, ReleaseBody, "release")
    return JsonAnswer({"ok": True, "ack": True, **({"drain": True} if draining else {})})


@router.post(
    "/checkpoints",
    summary="Read what earlier attempts have completed",
    response_model=Checkpoints,
    openapi_extra=request_body(CheckpointsBody),
    responses=problems.responses(*PROVEN),
)
async def checkpoints(request: Request) -> JsonAnswer:
    """Return the completed steps of a job that this worker holds."""
    state, who, body = await _read(request, CheckpointsBody)
    lease = await prove_one(state.engine, who.holder(body.worker_id), Proof(body.job_id, body.lease_token))
    if not lease.live:
        raise lost_problem()
    steps = await state.engine.steps(lease.job)
    results = {name: decode(text) for name, text in steps.results.items()}
    answer = {"ok": True, "checkpoints": results, "resumes": steps.jobs[1:], "cancel_reason": lease.job.cancel_reason}
    return JsonAnswer(answer)
