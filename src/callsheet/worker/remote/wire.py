"""The JSON of contract 003 for a worker: answers to claims become `Job` records, settlements become moves."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from callsheet.kernel.contracts import CONTROL_PLANE
from callsheet.kernel.errors import InvalidInput, NotJson, PayloadTooLarge
from callsheet.kernel.handing_on import UNKNOWN_TASK
from callsheet.kernel.job import Job, NewJob, OnDependencyFailure, Outcome, Status
from callsheet.kernel.settlement import Settlement
from callsheet.kernel.wire import encode

from .caller import ServerAway

REASON = 500
PAYLOAD_BYTES = 16 * 1024 * 1024  # the server has checked it when it took the job


class Lease(NamedTuple):
    """The ids and token that prove a claim to the server."""

    job_id: str
    attempt_id: str
    lease_token: str


class LeasedJob(NamedTuple):
    """One claimed job with its lease."""

    job: Job
    lease: Lease
    lease_s: float
    expires_in_s: float
    cancel: bool


class Unreadable(NamedTuple):
    """The lease of a claimed job with an unreadable payload, and the reason."""

    lease: Lease
    reason: str


def read_claim(answer: dict[str, Any], worker_id: str) -> tuple[list[LeasedJob], list[Unreadable]]:
    """Return the jobs in a claim's answer, and the jobs with unreadable payloads.

    Raises ServerAway for a malformed answer. One unreadable payload does not affect other jobs.
    """
    readable: list[LeasedJob] = []
    unreadable: list[Unreadable] = []
    try:
        jobs = (answer.get("jobs") or [answer]) if answer["claimed"] else []
        for fields in jobs:
            lease = Lease(str(fields["job_id"]), str(fields["attempt_id"]), str(fields["lease_token"]))
            try:
                readable.append(_read_job(fields, lease, worker_id))
            except (NotJson, PayloadTooLarge) as error:
                unreadable.append(Unreadable(lease, str(error)[:REASON]))
    except (KeyError, TypeError, ValueError) as error:
        raise ServerAway(f"the server's answer to a claim cannot be read ({type(error).__name__}: {error})") from None
    return readable, unreadable


def _read_job(fields: dict[str, Any], lease: Lease, worker_id: str) -> LeasedJob:
    lease_s = float(fields["lease_ttl_seconds"])
    expires_in_ms = fields.get("lease_expires_in_ms")
    return LeasedJob(
        _job(fields, fields.get("job") or {}, worker_id),
        lease,
        lease_s,
        lease_s if expires_in_ms is None else float(expires_in_ms) / 1000,
        bool(fields.get("cancel")),
    )


def _job(fields: dict[str, Any], details: dict[str, Any], worker_id: str) -> Job:
    started_at = int(details.get("attempt_started_at") or 0)
    return Job(
        job_id=str(fields["job_id"]),
        requester_id=str(details.get("requester_id", "")),
        contract=str(details.get("contract", CONTROL_PLANE.name)),
        kind=str(fields["task"]),
        queue=str(details.get("queue") or fields["stream"]),
        priority=int(details.get("priority", 0)),
        status=Status.RUNNING,
        stage=str(details.get("stage", "")),
        held=None,
        progress=float(details.get("progress", 0.0)),
        run_at=int(details.get("run_at") or 0),
        payload=encode(fields["payload"], limit_bytes=PAYLOAD_BYTES),
        result=None,
        error=None,
        worker_id=worker_id,
        claim_version=int(fields["fence"]),
        lease_expires_at=None,
        heartbeat_at=None,
        attempt_count=int(fields["attempt"]),
        max_attempts=int(fields["max_attempts"]),
        lease_losses=int(details.get("lease_losses", 0)),
        refresh_count=int(details.get("refresh_count", 0)),
        retry=str(details.get("retry", "")),
        created_at=int(details.get("created_at") or 0),
        updated_at=int(details.get("updated_at") or 0),
        started_at=int(details.get("started_at") or started_at),
        attempt_started_at=started_at,
        ended_at=None,
        cancel_requested_at=None,
        cancel_reason=None,
        unique_key=details.get("unique_key"),
        concurrency_key=details.get("concurrency_key"),
        blocked_by=0,
        broken_by=None,
        on_dependency_failure=OnDependencyFailure.CANCEL,
        ttl_s=details.get("ttl_s"),
        correlation_id=str(details.get("correlation_id", "")),
        event_seq=int(details.get("event_seq", 0)),
        event_ms=int(details.get("event_ms", 0)),
    )


MESSAGE, CODE = 1_000, 100
MAX_DELAY_MS = 7 * 86_400_000
FOLLOW_UP = (
    "queue", "priority", "delay_ms", "run_at", "max_attempts", "retry", "unique_key", "concurrency_key",
    "concurrency_limit", "ttl_s", "correlation_id",
)  # fmt: skip


def move_of(settlement: Settlement) -> dict[str, Any]:
    """Return a settlement's message, without the lease; raises InvalidInput if the protocol has none."""
    match settlement.outcome:
        case Outcome.SUCCEEDED:
            return _complete(settlement)
        case Outcome.RETRIED:
            return {**_fail(settlement), "retry_in_ms": settlement.delay_ms}
        case Outcome.FAILED:
            return _fail(settlement, retryable=False)
        case Outcome.DEAD_LETTERED:
            return {**_fail(settlement), "bury": True}
        case Outcome.CANCELED:
            return {"do": "cancel", "reason": (settlement.cancel_reason or "")[:MESSAGE]}
        case Outcome.RELEASED if settlement.error is not None:
            return _wait(settlement)
        case Outcome.RELEASED:
            return {"do": "release", "delay_ms": min(MAX_DELAY_MS, settlement.delay_ms)}
    if settlement.status is Status.QUEUED:
        return {"do": "release", "delay_ms": min(MAX_DELAY_MS, settlement.delay_ms)}
    return _report(settlement)


def _report(settlement: Settlement) -> dict[str, Any]:
    """Return the message of a settlement that does not end the attempt."""
    event = settlement.event
    if settlement.checkpoint is not None:
        name, data = settlement.checkpoint
        return {"do": "checkpoint", "name": name, "data": json.loads(data)}
    if event is None or settlement.status is not Status.RUNNING or settlement.refreshed or settlement.starts:
        raise InvalidInput(f"a remote worker has no words for a move to {settlement.status}")
    if event.type == "stage":
        return {"do": "stage", "stage": settlement.stage}
    if event.type == "progress" and settlement.progress is not None:
        message = str(json.loads(event.data).get("message", ""))[:MESSAGE]
        return {"do": "progress", "percent": settlement.progress, "message": message}
    return {"do": "event", "type": event.type, "data": json.loads(event.data)}


def _complete(settlement: Settlement) -> dict[str, Any]:
    move: dict[str, Any] = {"do": "complete", "result": json.loads(settlement.result or "null")}
    if settlement.follow_ups:
        move["follow_ups"] = [_follow_up(new) for new in settlement.follow_ups]
    return move


def _fail(settlement: Settlement, *, retryable: bool | None = None) -> dict[str, Any]:
    job_error = json.loads(settlement.error or "{}")
    error: dict[str, Any] = {
        "code": str(job_error.get("code") or "error")[:CODE],
        "message": str(job_error.get("message", "")),
    }
    if retryable is not None or "retryable" in job_error:
        error["retryable"] = job_error.get("retryable") if retryable is None else retryable
    if isinstance(job_error.get("details"), dict):
        error["details"] = job_error["details"]
    return {"do": "fail", "error": error}


def _wait(settlement: Settlement) -> dict[str, Any]:
    """Return the message that releases a job during an outage, or for another worker with its task.

    The server chooses the delay; for a missing task the worker sends its patience as well.
    """
    error = _fail(settlement)["error"]
    details = error.pop("details", {})
    move = {"do": "release", "waits_for": details.get("waits_for", "a service"), "error": error}
    if "after_ms" in details:
        move["delay_ms"] = min(MAX_DELAY_MS, details["after_ms"])
    patience_ms = details.get("patience_ms") if error["code"] == UNKNOWN_TASK else None
    return move if patience_ms is None else {**move, "patience_ms": min(MAX_DELAY_MS, patience_ms)}


def _follow_up(new: NewJob) -> dict[str, Any]:
    fields = {name: getattr(new, name) for name in FOLLOW_UP}
    return {
        "job_id": new.job_id,
        "task": new.kind,
        "payload": json.loads(new.payload),
        "depends_on": list(new.depends_on),
        "on_dependency_failure": new.on_dependency_failure.value,
        **{name: value for name, value in fields.items() if value is not None},
    }
