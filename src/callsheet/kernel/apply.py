"""Compute the job that a claim or a settlement leaves behind, as pure functions: every store's writes mean this.

Workers use these functions to know their job after a write without reading the row again; the differential test
compares each store with them.
"""

from __future__ import annotations

from .errors import InvalidInput
from .job import HoldReason, Job, Status
from .settlement import Settlement


def begin(job: Job, at: int) -> Job:
    """Return the job with its present attempt begun; a job whose attempt has begun is returned unchanged."""
    if job.has_started:
        return job
    return job._replace(
        attempt_count=job.attempt_count + 1,
        attempt_started_at=at,
        started_at=at if job.started_at is None else job.started_at,
    )


def after_claim(job: Job, *, worker_id: str, now: int, lease_ms: int, start: bool) -> Job:
    """Return the job after a claim: a new claim version and lease, and with `start` a new attempt and its event."""
    at = max(now, job.event_ms)
    job = job._replace(
        status=Status.RUNNING,
        held=None,
        worker_id=worker_id,
        claim_version=job.claim_version + 1,
        lease_expires_at=now + lease_ms,
        heartbeat_at=now,
        updated_at=at,
    )
    if start:
        job = begin(job, at)._replace(event_seq=job.event_seq + 1, event_ms=at)
    return job


def after_settlement(job: Job, s: Settlement, now: int) -> Job:
    """Return the job after a settlement whose fence held. Times never run backwards, even when the clock does."""
    at = max(now, job.event_ms)
    was_terminal = job.status.terminal
    if s.starts:
        job = begin(job, at)
    job = job._replace(
        status=s.status,
        updated_at=at,
        stage=job.stage if s.stage is None else s.stage,
        progress=max(job.progress, s.progress or 0.0),
        attempt_count=job.attempt_count - int(s.refund),
        lease_losses=job.lease_losses + int(s.lease_lost),
        refresh_count=job.refresh_count + int(s.refreshed),
        result=job.result if s.result is None else s.result,
        error=None if s.status is Status.SUCCEEDED else (s.error or job.error),
    )
    if s.cancel_reason is not None:
        job = job._replace(cancel_requested_at=job.cancel_requested_at or at, cancel_reason=s.cancel_reason)
    if s.event is not None:
        job = job._replace(event_seq=job.event_seq + 1, event_ms=at)
    if s.status is Status.RUNNING:
        return job._replace(lease_expires_at=lease_after(job, s.silence_ms))
    job = job._replace(lease_expires_at=None, heartbeat_at=None, attempt_started_at=None, held=None)
    if s.status.terminal:
        return job._replace(ended_at=at)
    job = job._replace(worker_id=None, run_at=now + s.delay_ms, held=held_after(job, s.delay_ms))
    return _requeued_job(job, s.fresh_attempts) if was_terminal else job


def lease_after(job: Job, silence_ms: int | None) -> int | None:
    """Return when a running job's lease ends after a move: `silence_ms` may shorten the lease and never extends it."""
    if silence_ms is None or job.lease_expires_at is None or job.heartbeat_at is None:
        return job.lease_expires_at
    return min(job.lease_expires_at, job.heartbeat_at + silence_ms)


def held_after(job: Job, delay_ms: int) -> HoldReason | None:
    """Return why a job that goes back to the queue is held; None if the job is ready at once."""
    if delay_ms > 0:
        return HoldReason.DELAY
    return HoldReason.SLOT if job.concurrency_key is not None else None


def _requeued_job(job: Job, fresh_attempts: int) -> Job:
    """Return an ended job that is back in the queue, without its end, its cancellation and its lease losses."""
    return job._replace(
        ended_at=None,
        cancel_requested_at=None,
        cancel_reason=None,
        broken_by=None,
        blocked_by=0,
        lease_losses=0,
        max_attempts=job.attempt_count + fresh_attempts if fresh_attempts else job.max_attempts,
    )


def progress_after(current: float, percent: float) -> float:
    """Return the progress after a report: clamped to 0–100, rounded to two decimals, never below `current`."""
    if percent != percent:  # noqa: PLR0124 - the one value that differs from itself
        message = "progress is not a number; report a percentage from 0 to 100"
        raise InvalidInput(message)
    return max(current, round(min(100.0, max(0.0, float(percent))), 2))


def timeline_faults(job: Job) -> list[str]:
    """Return the faults in a job's timestamps: created ≤ started ≤ ended, an end time exactly for terminal jobs."""
    faults: list[str] = []
    if job.started_at is not None and job.started_at < job.created_at:
        faults.append("started before it was created")
    if job.ended_at is not None and job.ended_at < (job.started_at or job.created_at):
        faults.append("ended before it started")
    if (job.ended_at is not None) is not job.status.terminal:
        faults.append("ended_at must be set exactly when the status is terminal")
    if job.status is Status.RUNNING and job.lease_expires_at is None:
        faults.append("running without a lease")
    if job.updated_at < job.created_at:
        faults.append("updated before it was created")
    return faults
