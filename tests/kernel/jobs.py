"""Jobs made by hand for tests of the kernel."""

from __future__ import annotations

from typing import Any

from callsheet.kernel.job import Job, OnDependencyFailure, Status

NOW = 1_800_000_000_000


def a_job(status: Status = Status.RUNNING, *, contract: str = "callsheet", **fields: Any) -> Job:
    """Return a job as a store would return it in this status; a running one has begun its first attempt."""
    running, queued = status is Status.RUNNING, status is Status.QUEUED
    job = Job(
        job_id="00000000-0000-4000-8000-000000000001",
        requester_id="acme",
        contract=contract,
        kind="work",
        queue="default",
        priority=0,
        status=status,
        stage="",
        held=None,
        progress=0.0,
        run_at=NOW,
        payload="{}",
        result=None,
        error=None,
        worker_id=None if queued else "w1",
        claim_version=0 if queued else 1,
        lease_expires_at=NOW + 30_000 if running else None,
        heartbeat_at=NOW if running else None,
        attempt_count=0 if queued else 1,
        max_attempts=3,
        lease_losses=0,
        refresh_count=0,
        retry="",
        created_at=NOW,
        updated_at=NOW,
        started_at=None if queued else NOW,
        attempt_started_at=NOW if running else None,
        ended_at=NOW if status.terminal else None,
        cancel_requested_at=None,
        cancel_reason=None,
        unique_key=None,
        concurrency_key=None,
        blocked_by=0,
        broken_by=None,
        on_dependency_failure=OnDependencyFailure.CANCEL,
        ttl_s=None,
        correlation_id="",
        event_seq=1 if queued else 2,
        event_ms=NOW,
    )
    return job._replace(**fields)


def in_state(name: str, contract: str) -> Job:
    """Return a job in one of the states of the tables below: a status, `claimed`, or a stage of a running job."""
    if name == "claimed":
        return a_job(contract=contract, attempt_started_at=None, started_at=None, attempt_count=0)
    if name in Status.__members__.values():
        return a_job(Status(name), contract=contract)
    return a_job(contract=contract, stage=name)
