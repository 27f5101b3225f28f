"""Convert the answers of Redis to the kernel's records, and refusals of scripts to the protocol's errors.

Missing and empty fields have their defaults.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from callsheet.kernel.contracts import CALLSHEET, FOREIGN, SHARED_CONTRACTS
from callsheet.kernel.errors import DependencyNotFound, DuplicateJob, IdempotencyConflict, QueueFull, QuotaExceeded
from callsheet.kernel.events import TERMINAL_EVENTS
from callsheet.kernel.job import (
    Attempt,
    Delivery,
    Event,
    HoldReason,
    Job,
    NewJob,
    OnDependencyFailure,
    OutboxEvent,
    Outcome,
    Status,
)
from callsheet.kernel.new_jobs import max_attempts_of

if TYPE_CHECKING:
    from callsheet.store.protocol import ClaimRequest

WORDS = {
    "queued": Status.QUEUED,
    "running": Status.RUNNING,
    "done": Status.SUCCEEDED,
    "error": Status.FAILED,
    "canceled": Status.CANCELED,
}
SEPARATOR = "\x1f"
_HELD = {h.value: h for h in HoldReason}
_POLICY = {p.value: p for p in OnDependencyFailure}
_CANCEL = OnDependencyFailure.CANCEL
_FOREIGN_ATTEMPTS = max_attempts_of(NewJob("", "", contract=FOREIGN))


def as_map(flat: Sequence[str]) -> dict[str, Any]:
    """Return a hash from a script's flat answer: name, value, name, value …; a later pair wins."""
    it = iter(flat)
    return dict(zip(it, it, strict=True))


def job_of(h: Mapping[str, Any]) -> Job:
    """Return the job in a hash; for a foreign hash, or one with foreign words, the job in its nine fields."""
    try:
        return _job_of(h if "seq" in h else _with_defaults(h))
    except (ValueError, KeyError):
        return _job_of(_with_defaults(h))


def _job_of(h: Mapping[str, Any]) -> Job:
    get = h.get
    created_s, updated_s = int(h["created_ts"]), int(h["updated_ts"])
    status = WORDS[h["status"]]
    running = status is Status.RUNNING
    claim_version = int(get("claim_version", 0))
    attempt_started_at = _int(get("attempt_started_at"))
    cancel_requested_at = _int(get("cancel_requested_at"))
    return Job(
        h["job_id"],
        get("requester_id", ""),
        get("contract", CALLSHEET.name),
        h["task"],
        get("queue", "default"),
        int(get("priority", 0)),
        Status.DEAD_LETTER if status is Status.FAILED and get("dead") else status,
        get("stage", ""),
        _HELD.get(get("held", "")) if status is Status.QUEUED else None,
        float(get("progress", 0.0)),
        int(get("run_at", created_s)),
        h["payload"],
        h["result"] or None,
        h["error"] or None,
        get("worker_id") or None,
        claim_version,
        _int(get("lease_expires_at")) if running else None,
        (_int(get("heartbeat_at")) or attempt_started_at) if running else None,
        int(get("attempt_count", claim_version)),
        int(get("max_attempts", _FOREIGN_ATTEMPTS)),
        int(get("lease_losses") or 0),
        int(get("refresh_count", 0)),
        get("retry", ""),
        created_s,
        updated_s,
        _int(get("started_at")) or attempt_started_at,
        attempt_started_at if running else None,
        updated_s if status.terminal else None,
        cancel_requested_at,
        None if cancel_requested_at is None else get("cancel_reason", ""),
        get("unique_key"),
        get("concurrency_key"),
        int(get("blocked_by") or 0),
        get("broken_by") or None,
        _POLICY.get(get("on_dependency_failure", ""), _CANCEL),
        None if h["ttl_s"] in ("", "0") else int(h["ttl_s"]),
        get("correlation_id", ""),
        int(get("event_seq", 1)),
        int(get("event_ms") or updated_s),
    )


def is_run_by_others(job: Job) -> bool:
    """Return whether a foreign worker runs the job, or has ended it: no worker of ours is named in the job."""
    return job.worker_id is None and job.status is not Status.QUEUED and job.contract in SHARED_CONTRACTS


def with_event_number(job: Job, count: int, last: Sequence[tuple[str, Mapping[str, str]]]) -> Job:
    """Return the job with the number and time of the last entry in its event stream."""
    if not last:
        return job
    entry_id, fields = last[0]
    missing = job.status.terminal and fields.get("type") not in TERMINAL_EVENTS
    return job._replace(event_seq=count + missing, event_ms=int(entry_id.partition("-")[0]))


def claimed_job_of(h: dict[str, Any], request: ClaimRequest, now: int) -> Job:
    """Return the job after a claim, from its hash before the claim.

    The job equals that of `callsheet.kernel.apply.after_claim`, at a third of the cost.
    """
    get = h.get
    try:
        event_ms = int(get("event_ms") or h["updated_ts"])
    except ValueError:
        event_ms = _whole(h["updated_ts"], now)
    at = max(now, event_ms)
    h["status"] = "running"
    h["updated_ts"] = at
    h["worker_id"] = request.worker_id
    version = int(get("claim_version", 0))
    attempts = int(get("attempt_count", version))
    h["claim_version"] = version + 1
    h["lease_expires_at"] = now + request.lease_ms
    h["heartbeat_at"] = now
    h["started_at"] = get("started_at") or get("attempt_started_at")
    if request.start:
        h["attempt_count"] = attempts + 1
        h["attempt_started_at"] = h["event_ms"] = at
        h["event_seq"] = int(get("event_seq", 1)) + 1
    else:
        h["attempt_count"] = attempts
        h["attempt_started_at"] = None
        h["event_ms"] = event_ms
    return job_of(h)


def _with_defaults(h: Mapping[str, str]) -> dict[str, str]:
    """Return an untouched foreign hash with default values for the fields that `job_of` needs."""
    created_at = str(_whole(h.get("created_ts")))
    status = h.get("status", "queued")
    fields = {
        "job_id": "",
        "task": "",
        "payload": "{}",
        "result": "",
        "error": "",
        "contract": FOREIGN,
        **h,
        "status": status if status in WORDS else "queued",
        "created_ts": created_at,
        "updated_ts": str(_whole(h.get("updated_ts"), int(created_at))),
        "ttl_s": str(_whole(h.get("ttl_s"))),
    }
    try:
        json.loads(fields["payload"])
    except ValueError:
        fields["payload"] = json.dumps({"_raw": fields["payload"]})
    return fields


def _whole(text: str | None, default: int = 0) -> int:
    try:
        return max(0, int(float(text or default)))
    except (ValueError, OverflowError):
        return default


def _int(text: str | int | None) -> int | None:
    return int(text) if text else None


def attempt_of(job_id: str, row: str) -> Attempt:
    """Return the attempt in an entry of `job:{id}:attempts`; its error is JSON and contains no separator."""
    version, attempt, started_at, ended_at, outcome, rest = row.split(SEPARATOR, 5)
    worker_id, _, error = rest.rpartition(SEPARATOR)
    return Attempt(
        job_id,
        int(version),
        int(attempt),
        worker_id,
        int(started_at),
        int(ended_at),
        Outcome(outcome),
        error or None,
    )


def event_of(job_id: str, seq: int, entry: tuple[str, Sequence[str]]) -> Event:
    """Return the event in an entry of `job:{id}:events`."""
    entry_id, flat = entry
    fields = as_map(flat)
    return Event(
        job_id,
        seq,
        int(entry_id.partition("-")[0]),
        fields.get("type", ""),
        fields.get("step", ""),
        _progress(fields.get("progress")),
        fields.get("data") or "{}",
        "" if "progress" in fields else entry_id,
    )


def _progress(text: str | None) -> float:
    """Return an event's progress; 0 if another program wrote the event without a valid number."""
    try:
        return float(text or 0)
    except ValueError:
        return 0.0


def outbox_event_of(h: Mapping[str, str]) -> OutboxEvent:
    """Return the callback in a hash `outbox:{event_id}`."""
    return OutboxEvent(
        h["event_id"],
        h["job_id"],
        h["requester_id"],
        h["endpoint"],
        h["body"],
        Delivery(h["status"]),
        int(h["run_at"]),
        int(h.get("attempt_count", 0)),
        h.get("worker_id") or None,
        int(h.get("claim_version", 0)),
        _int(h.get("lease_expires_at")),
        _int(h.get("heartbeat_at")),
        int(h["created_at"]),
        _int(h.get("ended_at")),
        h.get("error"),
        h.get("destination", ""),
    )


def answers_of(reply: list[Any]) -> list[Any]:
    """Return a script's answers, or raise the error of its refusal."""
    verdict, *rest = reply
    if verdict == "ok":
        return rest
    kind, name, *more = rest
    if kind == "conflict":
        raise IdempotencyConflict(
            f"idempotency key {name.partition(':')[2]!r} was used with another request; use a new key"
        )
    if kind == "dependency":
        raise DependencyNotFound(f"job {name} depends on {more[0]}, which does not exist; enqueue that first")
    if kind == "full":
        raise QueueFull(name, int(more[0]))
    if kind == "quota":
        raise QuotaExceeded("queued", name, limit=int(more[0]), used=int(more[1]))
    if kind == "duplicate":
        raise DuplicateJob(f"a job with one of these ids exists already ({name}); use new ids")
    raise DuplicateJob(f"a key of these jobs is in use by an active one ({name})")
