"""The claim and heartbeat verbs inside a SQLite transaction."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from callsheet.kernel.callbacks import claim_callback
from callsheet.kernel.contracts import WITH_CALLBACKS
from callsheet.kernel.job import Claim, Job, OnDependencyFailure, Status
from callsheet.store.protocol import ClaimRequest, HeartbeatResult
from callsheet.store.queries import Queries

from .line import line_up_due
from .side_records import outbox_row

if TYPE_CHECKING:
    from .connection import Db

Q = Queries("callsheet.store.sqlite")
RUNNING = Status.RUNNING  # read for every job, and an enum's member takes 45 ns to look up
_POLICY = {policy.value: policy for policy in OnDependencyFailure}


def claim(db: Db, request: ClaimRequest, now: int) -> list[Job]:
    """Fill the request queue by queue; due jobs join the end of the line, and a short claim tries once more."""
    paused_queues = {row[0] for row in db.execute(Q.paused_queues).fetchall()}
    jobs: list[Job] = []
    for queue in dict.fromkeys(request.queues):
        if queue in paused_queues or len(jobs) >= request.limit:
            continue
        jobs += _take(db, request, queue, now, request.limit - len(jobs))
        if line_up_due(db, queue, now) and len(jobs) < request.limit:
            jobs += _take(db, request, queue, now, request.limit - len(jobs))
    for job in jobs:
        if job.contract in WITH_CALLBACKS:
            _tell(db, job, now)
    return jobs


def _tell(db: Db, job: Job, now: int) -> None:
    """Write the claim's callback if the job asked for callbacks."""
    if (callback := claim_callback(job)) is not None:
        db.execute(Q.add_outbox, outbox_row(callback, job.job_id, job.requester_id, callback.body, now))


def heartbeat(db: Db, sql: str, claims: Sequence[Claim], now: int, *lengths_ms: int) -> list[HeartbeatResult]:
    """Extend many leases, of jobs or of outbox events: `sql` names the table, `lengths_ms` the lengths of leases."""
    until, *others = (now + length_ms for length_ms in lengths_ms)
    beats = []
    for claim in claims:
        row = db.execute(sql, (*claim, until, now, *others)).fetchone()
        beats.append(HeartbeatResult(held=True, cancel_requested=bool(row[0])) if row else HeartbeatResult(held=False))
    return beats


def _take(db: Db, request: ClaimRequest, queue: str, now: int, limit: int) -> list[Job]:
    """Claim the first ready jobs of a queue. The write lock is held, so all statements see the same line."""
    if request.tenants is not None:
        return _take_of_tenants(db, request, queue, now, limit)
    rows = db.execute(Q.claimable, (queue, limit)).fetchall()
    if rows:
        if request.start:
            db.execute(Q.note_running, (queue, len(rows), now))
        start = int(request.start)
        db.execute(Q.claim, (request.worker_id, now + request.lease_ms, now, start, queue, len(rows)))
    return [_claimed_job(row, request, queue, now) for row in rows]


def _take_of_tenants(db: Db, request: ClaimRequest, queue: str, now: int, limit: int) -> list[Job]:
    """Claim the first ready jobs of some tenants alone."""
    positions = db.execute(Q.claimable_of_tenants, (queue, json.dumps(sorted(request.tenants or ())), limit)).fetchall()
    if not positions:
        return []
    places = json.dumps([seq for (seq,) in positions])
    rows = db.execute(Q.claimable_by_seq, (places,)).fetchall()
    if request.start:
        db.execute(Q.note_running_by_seq, (places, now))
    db.execute(Q.claim_by_seq, (request.worker_id, now + request.lease_ms, now, int(request.start), places))
    return [_claimed_job(row, request, queue, now) for row in rows]


def _claimed_job(row: tuple[Any, ...], request: ClaimRequest, queue: str, now: int) -> Job:
    """Return the job as the claim leaves it."""
    (
        job_id, requester_id, contract, kind, priority, stage, progress, run_at, payload, error, claim_version,
        attempt_count, max_attempts, lease_losses, refresh_count, retry, created_at, started_at, cancel_requested_at,
        cancel_reason, unique_key, concurrency_key, on_failure, ttl_s, correlation_id, event_seq, event_ms,
    ) = row  # fmt: skip
    at, start = max(now, event_ms), request.start
    return tuple.__new__(Job, (
        job_id, requester_id, contract, kind, queue, priority, RUNNING, stage, None, progress, run_at, payload,
        None, error, request.worker_id, claim_version + 1, now + request.lease_ms, now, attempt_count + start,
        max_attempts, lease_losses, refresh_count, retry, created_at, at,
        at if start and started_at is None else started_at, at if start else None, None, cancel_requested_at,
        cancel_reason, unique_key, concurrency_key, 0, None, _POLICY[on_failure], ttl_s, correlation_id,
        event_seq + start, at if start else event_ms,
    ))  # fmt: skip
