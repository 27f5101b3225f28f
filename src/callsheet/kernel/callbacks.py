"""The callbacks of a job: one per change of the contract's word, in the settlement that makes the change.

So a worker, housekeeping and an operator all send the callback in the write that moves the job. A claim reaches each
word at most once, so claim version and word form the event's id: the same move has the same id, however often it is
written. They also give the callback its sequence number. A worker's own count of events is no substitute: that count
includes progress reports that newer reports replaced, and these are never written.

A claim is not a settlement: one statement claims many jobs of any kind. The store writes the claim's callback in the
same transaction (`claim_callback`). If a worker of an older version claimed the job and died before its callback, the
next settlement under that claim writes both callbacks. So every claim has exactly one callback.

A failure that leads to a retry or a dead letter is one write with two callbacks: `failed`, then `queued` or
`dead_letter`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .contracts import WITH_CALLBACKS, lifecycle_of
from .errors import NotJson, PayloadTooLarge
from .job import NewOutboxEvent, Outcome, Status
from .settlement import Settlement
from .wire import decode, encode

if TYPE_CHECKING:
    from .job import Job, Json, NewJob
    from .lifecycle import CallbackBody, Lifecycle


class _Request(NamedTuple):
    """A job's request for callbacks: the contract's form of them, the receiver's URL and the whole payload."""

    form: CallbackBody
    url: str
    payload: dict[str, Any]


def claim_callback(job: Job) -> NewOutboxEvent | None:
    """Return the callback for a job's newest claim; None if the job asked for no callbacks."""
    if job.contract not in WITH_CALLBACKS or job.status is not Status.RUNNING:
        return None
    if (request := _request_in(job.contract, job.payload)) is None:
        return None
    claim = Settlement(job.job_id, job.claim_version, Status.RUNNING, Status.RUNNING, stage="")
    at = job.updated_at if job.attempt_started_at is None else job.attempt_started_at
    return _callback(job, request, claim, lifecycle_of(job.contract).word(Status.QUEUED), at)


class ClaimCallback(NamedTuple):
    """The callback for any claim of a new job, prepared for a store that cannot compute it during the claim.

    The event's id is `evt_`, the job's id without its dashes, `_`, the claim's version, `_`, `word`. `sequence` is
    `stride` times the version. `rest` is the JSON body without its opening brace, from the first member that is equal
    for every claim.
    """

    endpoint: str
    destination: str
    word: str
    stride: int
    rest: str


def claim_callback_of(new: NewJob) -> ClaimCallback | None:
    """Return the prepared callback for a new job's claims; None if the job asked for no callbacks."""
    request = _request_in(new.contract, new.payload) if new.contract in WITH_CALLBACKS else None
    if request is None:
        return None
    lifecycle = lifecycle_of(new.contract)
    word = lifecycle.word(Status.RUNNING, has_started=True) or ""
    rest = request.form.constant_members(new.kind, new.job_id, word, lifecycle.word(Status.QUEUED), request.payload)
    destination = NewOutboxEvent("", request.url, "").destination
    return ClaimCallback(request.url, destination, word, _sequence(lifecycle, 1, Status.RUNNING, ""), _json(rest)[1:])


def with_callback(job: Job, settlement: Settlement) -> Settlement:
    """Return the settlement with its job's callback, if the job asked for callbacks and the contract's word changes."""
    request = _request_in(job.contract, job.payload)
    if request is None:
        return settlement
    lifecycle = lifecycle_of(job.contract)
    stage = job.stage if settlement.stage is None else settlement.stage
    before, after = lifecycle.word_of(job), lifecycle.word(settlement.status, stage, has_started=True)
    if before == after:
        return settlement
    callbacks = [_callback(job, request, settlement, before)]
    if _goes_through_failed(lifecycle, settlement):
        failure = settlement._replace(status=Status.FAILED)
        end = _callback(job, request, settlement, lifecycle.word(Status.FAILED))
        callbacks = [_callback(job, request, failure, before), end]
    if not job.stage and settlement.status is not Status.RUNNING and (claim := claim_callback(job)) is not None:
        callbacks = [claim, *callbacks]
    return settlement._replace(outbox=(*settlement.outbox, *callbacks))


def _goes_through_failed(lifecycle: Lifecycle, settlement: Settlement) -> bool:
    """Return whether this write passes the contract's word for failure on its way to a dead letter or a retry.

    A claim that is released or lost goes straight to the queue, as the contract's table allows.
    """
    if settlement.from_status is not Status.RUNNING or lifecycle.word(Status.FAILED) not in lifecycle.passes:
        return False
    return settlement.status is Status.DEAD_LETTER or settlement.outcome is Outcome.RETRIED


def _request_in(contract: str, payload: Json) -> _Request | None:
    """Return the request for callbacks in a job's payload; None if the payload has none."""
    form = lifecycle_of(contract).callback
    if form is None or f'"{form.url}"' not in payload:
        return None
    try:
        members = decode(payload)
    except (ValueError, RecursionError):
        return None  # without a readable payload there is no URL to call
    url = members.get(form.url) if isinstance(members, dict) else None
    return _Request(form, url, members) if isinstance(url, str) and url else None


def _callback(
    job: Job, request: _Request, settlement: Settlement, before: str | None, at: int | None = None
) -> NewOutboxEvent:
    """Return the callback for a move away from the word `before`. Without `at` the store adds the time of the move."""
    form, lifecycle = request.form, lifecycle_of(job.contract)
    stage = job.stage if settlement.stage is None else settlement.stage
    after = lifecycle.word(settlement.status, stage, has_started=True) or ""
    event_id = f"evt_{job.job_id.replace('-', '')}_{job.claim_version}_{after}"
    body = {
        "event_id": event_id,
        "sequence": _sequence(lifecycle, job.claim_version, settlement.status, stage),
        "attempt_count": job.attempt_count,
        "max_attempts": job.max_attempts,
        "progress": max(job.progress, settlement.progress or 0.0),
        **({} if at is None else {form.time: at}),
        **form.constant_members(job.kind, job.job_id, after, before, request.payload),
        **form.end_members(settlement),
    }
    return NewOutboxEvent(event_id, request.url, _json(body), form.time if at is None else "")


def _json(body: dict[str, Any]) -> Json:
    """Return the body as JSON. Metadata that cannot be written as JSON is dropped: the move matters more."""
    try:
        return encode(body)
    except (NotJson, PayloadTooLarge):
        return encode({**body, "metadata": {}})


def _sequence(lifecycle: Lifecycle, claim_version: int, status: Status, stage: str) -> int:
    """Return a number that rises from callback to callback of a job, by claim, then by stage, then the end.

    A dead letter and a retry have higher numbers than the failure before them.
    """
    stages = ("", *(lifecycle.stages or ()))
    last = len(stages)
    after_failure = status in (Status.DEAD_LETTER, Status.QUEUED)
    rank = stages.index(stage) if status is Status.RUNNING else last + int(after_failure)
    return claim_version * (last + 2) + rank
