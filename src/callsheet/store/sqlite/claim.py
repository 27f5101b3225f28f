"""The claim and heartbeat verbs inside a SQLite transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callsheet.store.protocol import Beat
from callsheet.store.queries import Queries
from callsheet.store.rows import in_line, job_of

from .line import line_up_due

if TYPE_CHECKING:
    from collections.abc import Sequence

    from callsheet.kernel.job import Claim, Job
    from callsheet.store.protocol import ClaimRequest

    from .connection import Db

Q = Queries("callsheet.store.sqlite")


def claim(db: Db, request: ClaimRequest, now: int) -> list[Job]:
    """Fill the request queue by queue; due jobs take their place at the end, and a short claim looks again."""
    paused = {row[0] for row in db.execute(Q.paused).fetchall()}
    rows: list[tuple[object, ...]] = []
    for queue in dict.fromkeys(request.queues):
        if queue in paused or len(rows) >= request.limit:
            continue
        rows += _take(db, request, queue, now, request.limit - len(rows))
        if line_up_due(db, queue, now) and len(rows) < request.limit:
            rows += _take(db, request, queue, now, request.limit - len(rows))
    jobs = [job_of(row) for row in rows]
    if request.start:
        db.executemany(
            Q.event,
            [(job.job_id, job.event_seq, job.event_ms, "running", job.stage, job.progress, "{}") for job in jobs],
        )
    return jobs


def heartbeat(db: Db, sql: str, claims: Sequence[Claim], lease_ms: int, now: int) -> list[Beat]:
    """Extend many leases, of jobs or of outbox events; the query says which."""
    beats = []
    for claim in claims:
        row = db.execute(sql, (*claim, now + lease_ms, now)).fetchone()
        beats.append(Beat(held=True, cancel_requested=bool(row[0])) if row else Beat(held=False))
    return beats


def _take(db: Db, request: ClaimRequest, queue: str, now: int, limit: int) -> list[tuple[object, ...]]:
    parameters = (request.worker_id, now + request.lease_ms, now, request.start, queue, limit)
    return sorted(db.execute(Q.claim, parameters).fetchall(), key=in_line)
