"""Convert SQL rows to the kernel's records. Columns are in the order of the records' fields."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from callsheet.kernel.audit import AuditEntry
from callsheet.kernel.job import (
    Attempt,
    Credentials,
    Delivery,
    Envelope,
    HoldReason,
    Job,
    OnDependencyFailure,
    OutboxEvent,
    Outcome,
    Status,
)

from .audit import AuditPage
from .protocol import ReadyJob, ReadyPage

_WIDTH = len(Job._fields)  # the store's own columns come before the job's
_STATUS = {s.value: s for s in Status}
_HELD: dict[str | None, HoldReason | None] = {None: None, **{h.value: h for h in HoldReason}}
_POLICY = {p.value: p for p in OnDependencyFailure}
_OUTCOME = {o.value: o for o in Outcome}
_S = Job._fields.index("status")
_H = Job._fields.index("held")
_P = Job._fields.index("on_dependency_failure")


def job_of(row: Sequence[Any]) -> Job:
    """Return the job in a row of `SELECT *`."""
    fields = list(row[-_WIDTH:])
    fields[_S] = _STATUS[fields[_S]]
    fields[_H] = _HELD[fields[_H]]
    fields[_P] = _POLICY[fields[_P]]
    return Job._make(fields)


def attempt_of(row: Sequence[Any]) -> Attempt:
    """Return the attempt in a row of `job_attempts`."""
    return Attempt._make((*row[:6], _OUTCOME[row[6]], row[7]))


def running_attempt(job: Job) -> Attempt:
    """Return the current attempt of a running job."""
    return Attempt(
        job.job_id,
        job.claim_version,
        job.attempt_count,
        job.worker_id or "",
        job.attempt_started_at or 0,
        None,
        None,
        None,
    )


def outbox_event_of(row: Sequence[Any]) -> OutboxEvent:
    """Return the outbox event in a row of `SELECT *` (the row's own `seq` first)."""
    return OutboxEvent._make((*row[1:6], Delivery(row[6]), *row[7:]))


def credentials_of(row: Sequence[Any]) -> Credentials:
    """Return the credentials in a row of `job_credentials`."""
    return Credentials(row[0], row[1], Envelope._make(row[2:]))


def audit_page(rows: Sequence[Sequence[Any]], limit: int) -> AuditPage:
    """Return a page of the audit log from rows that begin with the entry's number and time."""
    entries = [AuditEntry._make((*row[2:], row[1], f"{row[1]}-{row[0]}")) for row in rows]
    return AuditPage(entries, entries[-1].entry_id if len(entries) == limit else None)


def ready_page(rows: Sequence[Sequence[Any]], limit: int) -> ReadyPage:
    """Return a page of ready jobs from rows that end with a job's priority and its position within that priority."""
    jobs = [ReadyJob(*row[:3]) for row in rows]
    return ReadyPage(jobs, json.dumps([rows[-1][1], *rows[-1][3:]]) if len(rows) == limit else None)


def line_place(cursor: str | None) -> tuple[Any, Any, Any]:
    """Return queue, priority and position from a page cursor; an empty queue means the first page."""
    queue, priority, place = json.loads(cursor) if cursor is not None else ("", 0, 0)
    return queue, priority, place


def next_cursor(rows: Sequence[Sequence[Any]], limit: int, floor: int | None) -> str | None:
    """Return the cursor after a page whose rows begin with their `seq`; `floor` is the lowest `seq` scanned."""
    if len(rows) == limit:
        return str(rows[-1][0])
    return str(floor) if floor else None
