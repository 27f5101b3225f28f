"""Callbacks that a job's contract promises: one for each move that its words tell, in the move's own settlement.

So whoever moves a job, a worker, housekeeping or an operator, tells of it in the same write. A claim comes to each word
at most once, so claim and word are the event's id: the same move has the same id, however often it is written. They
also give its place among the job's callbacks. A worker's own count of events would not do: reports of progress that
were overtaken by later ones are in it and never written.

A claim itself is no settlement: it takes many jobs of any kind in one statement. The store tells of it in the same
transaction (`claim_callback`). Where an older version has claimed and died before it told, the move that takes the job
from that claim tells of both. So no claim goes untold, and none is told twice.

A failure that leads to a retry or to a dead letter is one write and two words: `failed`, then where it leads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .contracts import CALLING, lifecycle_of
from .errors import NotJson, PayloadTooLarge
from .job import NewOutboxEvent, Outcome, Status
from .settlement import Settlement
from .wire import decode, encode

if TYPE_CHECKING:
    from .job import Job, Json, NewJob
    from .lifecycle import Lifecycle

TIME = "occurred_at"


def claim_callback(job: Job) -> NewOutboxEvent | None:
    """Return what tells of the claim that a job was just taken by; None where nobody asked for that."""
    if job.contract not in CALLING or job.status is not Status.RUNNING:
        return None
    lifecycle, asked = lifecycle_of(job.contract), _asked(job.contract, job.payload)
    if not asked:
        return None
    claim = Settlement(job.job_id, job.claim_version, Status.RUNNING, Status.RUNNING, stage="")
    at = job.updated_at if job.attempt_started_at is None else job.attempt_started_at
    return _callback(job, asked, claim, lifecycle.word(Status.QUEUED), at)


class ClaimCallback(NamedTuple):
    """What will tell of any claim of a new job, for a store that cannot ask at the claim.

    The event's id is `evt_`, the job's id without its dashes, `_`, the claim's version, `_`, `word`. `sequence` is
    `stride` times the version. `rest` is the body from its first member on that no claim changes, without the brace.
    """

    endpoint: str
    destination: str
    word: str
    stride: int
    rest: str


def claim_callback_of(new: NewJob) -> ClaimCallback | None:
    """Return what will tell of a new job's claims; None where nobody asked for that."""
    asked = _asked(new.contract, new.payload) if new.contract in CALLING else {}
    if not asked:
        return None
    lifecycle = lifecycle_of(new.contract)
    word = lifecycle.word(Status.RUNNING, started=True) or ""
    fixed = _fixed_members(new.kind, new.job_id, word, lifecycle.word(Status.QUEUED), asked)
    endpoint = asked[lifecycle.callback]
    destination = NewOutboxEvent("", endpoint, "").destination
    return ClaimCallback(endpoint, destination, word, _sequence(lifecycle, 1, Status.RUNNING, ""), _written(fixed)[1:])


def with_callback(job: Job, settlement: Settlement) -> Settlement:
    """The settlement with its job's callback, when the job asked for one and the contract has a new word for it."""
    asked = _asked(job.contract, job.payload)
    if not asked:
        return settlement
    lifecycle = lifecycle_of(job.contract)
    stage = job.stage if settlement.stage is None else settlement.stage
    before, after = lifecycle.word_of(job), lifecycle.word(settlement.status, stage, started=True)
    if before == after:
        return settlement
    told = [_callback(job, asked, settlement, before)]
    if _goes_through_failed(lifecycle, settlement):
        failed = settlement._replace(status=Status.FAILED)
        ended = _callback(job, asked, settlement, lifecycle.word(Status.FAILED))
        told = [_callback(job, asked, failed, before), ended]
    if not job.stage and settlement.status is not Status.RUNNING and (claim := claim_callback(job)) is not None:
        told = [claim, *told]
    return settlement._replace(outbox=(*settlement.outbox, *told))


def _goes_through_failed(lifecycle: Lifecycle, settlement: Settlement) -> bool:
    """Whether one write takes a job through the contract's word for a failure, on to a dead letter or a retry.

    A claim that is handed back or lost goes straight to the queue, as the contract's table lets it.
    """
    if settlement.from_status is not Status.RUNNING or lifecycle.word(Status.FAILED) not in lifecycle.passes:
        return False
    return settlement.status is Status.DEAD_LETTER or settlement.outcome is Outcome.RETRIED


def _asked(contract: str, payload: Json) -> dict[str, Any]:
    """The payload of a job that wants callbacks; empty for all others."""
    name = lifecycle_of(contract).callback
    if not name or f'"{name}"' not in payload:
        return {}
    try:
        asked = decode(payload)
    except (ValueError, RecursionError):
        return {}  # nobody can tell whom to call
    url = asked.get(name) if isinstance(asked, dict) else None
    return asked if isinstance(url, str) and url else {}


def _callback(
    job: Job, asked: dict[str, Any], settlement: Settlement, before: str | None, at: int | None = None
) -> NewOutboxEvent:
    """What tells of a move from a word of the contract; the store adds the time of the move where it is not given."""
    lifecycle = lifecycle_of(job.contract)
    stage = job.stage if settlement.stage is None else settlement.stage
    after = lifecycle.word(settlement.status, stage, started=True) or ""
    event_id = f"evt_{job.job_id.replace('-', '')}_{job.claim_version}_{after}"
    body = {
        "event_id": event_id,
        "sequence": _sequence(lifecycle, job.claim_version, settlement.status, stage),
        "attempt_count": job.attempt_count,
        "max_attempts": job.max_attempts,
        "progress": max(job.progress, settlement.progress or 0.0),
        **({} if at is None else {TIME: at}),
        **_fixed_members(job.kind, job.job_id, after, before, asked),
        **_end_of(settlement),
    }
    return NewOutboxEvent(event_id, asked[lifecycle.callback], _written(body), TIME if at is None else "")


def _fixed_members(kind: str, job_id: str, after: str, before: str | None, asked: dict[str, Any]) -> dict[str, Any]:
    """The members of a body that do not differ from one claim of a job to the next."""
    return {
        "type": f"{kind}.{after}",
        "job_id": job_id,
        "status": after,
        "previous_status": before,
        "metadata": asked.get("metadata") or {},
    }


def _written(body: dict[str, Any]) -> Json:
    """The body as JSON. What a requester gave along is left out where it cannot be written: the move counts more."""
    try:
        return encode(body)
    except (NotJson, PayloadTooLarge):
        return encode({**body, "metadata": {}})


def _sequence(lifecycle: Lifecycle, claim_version: int, status: Status, stage: str) -> int:
    """A number that rises from callback to callback of a job: by claim, then by stage, then its end.

    A dead letter and the queue come after the failure that leads there.
    """
    stages = ("", *(lifecycle.stages or ()))
    last = len(stages)
    after_failure = status in (Status.DEAD_LETTER, Status.QUEUED)
    rank = stages.index(stage) if status is Status.RUNNING else last + int(after_failure)
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
