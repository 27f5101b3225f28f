"""Callbacks that a job's contract promises: one for each move that its words tell, in the move's own settlement.

So whoever moves a job, a worker, housekeeping or an operator, tells of it in the same write. A claim comes to each word
at most once, so claim and word are the event's id: the same move has the same id, however often it is written. They
also give its place among the job's callbacks. A worker's own count of events would not do: reports of progress that
were overtaken by later ones are in it and never written.

A claim itself is no settlement: it takes many jobs of any kind in one statement. The engine tells of it by a write of
its own before it hands the jobs out (`claim_told`); where a process died between the two, the move that takes the job
from that claim tells of both. So no claim goes untold, and none is told twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .contracts import CONTRACTS, lifecycle_of
from .errors import NotJson, PayloadTooLarge
from .job import NewOutboxEvent, Status
from .settlement import Settlement
from .wire import decode, encode

if TYPE_CHECKING:
    from .job import Job, Json
    from .lifecycle import Lifecycle

CALLING = frozenset(name for name, lifecycle in CONTRACTS.items() if lifecycle.callback)


def claim_told(job: Job) -> Settlement | None:
    """What tells of a job's claim and moves nothing; None where nobody asked for that."""
    lifecycle, asked = lifecycle_of(job.contract), _asked(job)
    if not asked or job.status is not Status.RUNNING:
        return None
    claim = Settlement(job.job_id, job.claim_version, Status.RUNNING, Status.RUNNING, stage="")
    told = _callback(job, asked, claim, lifecycle.word(Status.QUEUED))
    return claim._replace(stage=None, outbox=(told,))


def with_callback(job: Job, settlement: Settlement) -> Settlement:
    """The settlement with its job's callback, when the job asked for one and the contract has a new word for it."""
    asked = _asked(job)
    if not asked:
        return settlement
    lifecycle = lifecycle_of(job.contract)
    stage = job.stage if settlement.stage is None else settlement.stage
    before, after = lifecycle.word_of(job), lifecycle.word(settlement.status, stage, started=True)
    if before == after:
        return settlement
    told = [_callback(job, asked, settlement, before)]
    if job.status is Status.RUNNING and not job.stage and settlement.status is not Status.RUNNING:
        told = [*(claim.outbox if (claim := claim_told(job)) else ()), *told]
    return settlement._replace(outbox=(*settlement.outbox, *told))


def _asked(job: Job) -> dict[str, Any]:
    """The payload of a job that wants callbacks; empty for all others."""
    name = lifecycle_of(job.contract).callback
    if not name or f'"{name}"' not in job.payload:
        return {}
    try:
        asked = decode(job.payload)
    except (ValueError, RecursionError):
        return {}  # nobody can tell whom to call
    url = asked.get(name) if isinstance(asked, dict) else None
    return asked if isinstance(url, str) and url else {}


def _callback(job: Job, asked: dict[str, Any], settlement: Settlement, before: str | None) -> NewOutboxEvent:
    """What tells of a move from a word of the contract."""
    lifecycle = lifecycle_of(job.contract)
    stage = job.stage if settlement.stage is None else settlement.stage
    after = lifecycle.word(settlement.status, stage, started=True)
    event_id = f"evt_{job.job_id.replace('-', '')}_{job.claim_version}_{after}"
    body = {
        "event_id": event_id,
        "type": f"{job.kind}.{after}",
        "job_id": job.job_id,
        "sequence": _sequence(lifecycle, job.claim_version, settlement.status, stage),
        "status": after,
        "previous_status": before,
        "attempt_count": job.attempt_count,
        "max_attempts": job.max_attempts,
        "progress": max(job.progress, settlement.progress or 0.0),
        "metadata": asked.get("metadata") or {},
        **_end_of(settlement),
    }
    return NewOutboxEvent(event_id, asked[lifecycle.callback], _written(body))


def _written(body: dict[str, Any]) -> Json:
    """The body as JSON. What a requester gave along is left out where it cannot be written: the move counts more."""
    try:
        return encode(body)
    except (NotJson, PayloadTooLarge):
        return encode({**body, "metadata": {}})


def _sequence(lifecycle: Lifecycle, claim_version: int, status: Status, stage: str) -> int:
    """A number that rises from callback to callback of a job: by claim, then by stage, then its end, then the queue."""
    stages = ("", *(lifecycle.stages or ()))
    last = len(stages)
    rank = stages.index(stage) if status is Status.RUNNING else last if status.terminal else last + 1
    return claim_version * (last + 2) + rank


def _end_of(settlement: Settlement) -> dict[str, Any]:
    """The outputs of a success; the error of everything else that ends an attempt."""
    if settlement.status is Status.SUCCEEDED:
        result = decode(settlement.result) if settlement.result else None
        return {"outputs": result.get("outputs", []) if isinstance(result, dict) else []}
    if settlement.error:
        return {"error": normalised(settlement.error)}
    return {}


def normalised(error: str) -> dict[str, Any]:
    """An error as the outside sees it: its code, its message and whether another attempt may help; no traceback."""
    told = decode(error)
    if not isinstance(told, dict):
        return {"code": "error", "message": str(told)}
    return {name: told[name] for name in ("code", "message", "retryable") if name in told}
