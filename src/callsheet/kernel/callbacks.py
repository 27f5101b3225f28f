"""Callbacks that a job's contract promises: one for each move that its words tell, in the move's own settlement.

So whoever moves a job, a worker, housekeeping or an operator, tells of it in the same write. A claim comes to each word
at most once, so claim and word are the event's id: the same move has the same id, however often it is written. They
also give its place among the job's callbacks. A worker's own count of events would not do: reports of progress that
were overtaken by later ones are in it and never written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .contracts import lifecycle_of
from .job import NewOutboxEvent, Status
from .wire import decode, encode

if TYPE_CHECKING:
    from .job import Job
    from .lifecycle import Lifecycle
    from .settlement import Settlement


def with_callback(job: Job, settlement: Settlement) -> Settlement:
    """The settlement with its job's callback, when the job asked for one and the contract has a new word for it."""
    lifecycle = lifecycle_of(job.contract)
    if not lifecycle.callback or f'"{lifecycle.callback}"' not in job.payload:
        return settlement
    stage = job.stage if settlement.stage is None else settlement.stage
    before, after = lifecycle.word_of(job), lifecycle.word(settlement.status, stage, started=True)
    asked = decode(job.payload)
    url = asked.get(lifecycle.callback) if isinstance(asked, dict) else None
    if before == after or not isinstance(url, str) or not url:
        return settlement
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
    callback = NewOutboxEvent(event_id, url, encode(body))
    return settlement._replace(outbox=(*settlement.outbox, callback))


def _sequence(lifecycle: Lifecycle, claim_version: int, status: Status, stage: str) -> int:
    """A number that rises from callback to callback of a job: by claim, then by stage, then its end, then the queue."""
    stages = lifecycle.stages or ()
    last = len(stages) + 1
    rank = 1 + stages.index(stage) if status is Status.RUNNING else last if status.terminal else last + 1
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
