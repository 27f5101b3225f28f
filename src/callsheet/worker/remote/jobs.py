"""Parsing of claim answers: from a server's JSON to `Job` records."""

from __future__ import annotations

from typing import Any, NamedTuple

from callsheet.kernel.contracts import CONTROL_PLANE
from callsheet.kernel.errors import NotJson, PayloadTooLarge
from callsheet.kernel.job import Job, OnDependencyFailure, Status
from callsheet.kernel.wire import encode

from .answers import ServerAway

REASON = 500
PAYLOAD_BYTES = 16 * 1024 * 1024  # the server has checked it when it took the job


class Lease(NamedTuple):
    """The ids and token that prove a claim to the server."""

    job_id: str
    attempt_id: str
    lease_token: str


class Taken(NamedTuple):
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


def read_claim(answer: dict[str, Any], worker_id: str) -> tuple[list[Taken], list[Unreadable]]:
    """Return the jobs in a claim's answer, and the jobs with unreadable payloads.

    Raises ServerAway for a malformed answer. One unreadable payload does not affect other jobs.
    """
    taken: list[Taken] = []
    unreadable: list[Unreadable] = []
    try:
        jobs = (answer.get("jobs") or [answer]) if answer["claimed"] else []
        for told in jobs:
            lease = Lease(str(told["job_id"]), str(told["attempt_id"]), str(told["lease_token"]))
            try:
                taken.append(_taken(told, lease, worker_id))
            except (NotJson, PayloadTooLarge) as error:
                unreadable.append(Unreadable(lease, str(error)[:REASON]))
    except (KeyError, TypeError, ValueError) as error:
        raise ServerAway(f"the server's answer to a claim cannot be read ({type(error).__name__}: {error})") from None
    return taken, unreadable


def _taken(told: dict[str, Any], lease: Lease, worker_id: str) -> Taken:
    lease_s = float(told["lease_ttl_seconds"])
    expires_in_ms = told.get("lease_expires_in_ms")
    return Taken(
        _job(told, told.get("job") or {}, worker_id),
        lease,
        lease_s,
        lease_s if expires_in_ms is None else float(expires_in_ms) / 1000,
        bool(told.get("cancel")),
    )


def _job(told: dict[str, Any], known: dict[str, Any], worker_id: str) -> Job:
    started_at = int(known.get("attempt_started_at") or 0)
    return Job(
        job_id=str(told["job_id"]),
        requester_id=str(known.get("requester_id", "")),
        contract=str(known.get("contract", CONTROL_PLANE.name)),
        kind=str(told["task"]),
        queue=str(known.get("queue") or told["stream"]),
        priority=int(known.get("priority", 0)),
        status=Status.RUNNING,
        stage=str(known.get("stage", "")),
        held=None,
        progress=float(known.get("progress", 0.0)),
        run_at=int(known.get("run_at") or 0),
        payload=encode(told["payload"], limit_bytes=PAYLOAD_BYTES),
        result=None,
        error=None,
        worker_id=worker_id,
        claim_version=int(told["fence"]),
        lease_expires_at=None,
        heartbeat_at=None,
        attempt_count=int(told["attempt"]),
        max_attempts=int(told["max_attempts"]),
        lease_losses=int(known.get("lease_losses", 0)),
        refresh_count=int(known.get("refresh_count", 0)),
        retry=str(known.get("retry", "")),
        created_at=int(known.get("created_at") or 0),
        updated_at=int(known.get("updated_at") or 0),
        started_at=int(known.get("started_at") or started_at),
        attempt_started_at=started_at,
        ended_at=None,
        cancel_requested_at=None,
        cancel_reason=None,
        unique_key=known.get("unique_key"),
        concurrency_key=known.get("concurrency_key"),
        blocked_by=0,
        broken_by=None,
        on_dependency_failure=OnDependencyFailure.CANCEL,
        ttl_s=known.get("ttl_s"),
        correlation_id=str(known.get("correlation_id", "")),
        event_seq=int(known.get("event_seq", 0)),
        event_ms=int(known.get("event_ms", 0)),
    )
