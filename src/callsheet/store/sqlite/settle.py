"""The settle verb inside a SQLite transaction: one fenced move with everything that hangs on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callsheet.kernel.job import Status
from callsheet.store.protocol import Settled
from callsheet.store.queries import Queries

from .connection import refusing_duplicates
from .enqueue import enqueue
from .line import admit, next_positions, release_dependents

if TYPE_CHECKING:
    from callsheet.kernel.settlement import Settlement

    from .connection import Db

Q = Queries("callsheet.store.sqlite")


def settle(db: Db, s: Settlement, now: int) -> Settled:
    """Apply one settlement if its fence holds."""
    if s.outcome is not None:
        db.execute(
            Q.end_attempt,
            (
                s.job_id,
                s.claim_version,
                s.from_status,
                s.starts,
                now,
                s.outcome.value,
                s.error,
                s.expired_only,
            ),
        )
    with refusing_duplicates("an active job holds this key; let that one end first"):
        row = db.execute(Q.settle, _parameters(db, s, now)).fetchone()
    if row is None:
        return _repeated(db, s)
    event_seq, event_ms, progress, key, requester_id = row
    if s.event is not None:
        db.execute(Q.event, (s.job_id, event_seq, event_ms, s.event.type, s.event.step, progress, s.event.data))
    if s.checkpoint is not None:
        db.execute(Q.keep_checkpoint, (s.job_id, *s.checkpoint))
    for out in s.outbox:
        db.execute(Q.add_outbox, (out.event_id, s.job_id, requester_id, out.endpoint, out.body, now))
    if s.status is not Status.RUNNING:
        if s.follow_ups:
            enqueue(db, s.follow_ups, now)
        if s.status.terminal:
            release_dependents(db, s.job_id, s.status, now)
        if key is not None:
            admit(db, key)
    return Settled.APPLIED


def _parameters(db: Db, s: Settlement, now: int) -> tuple[object, ...]:
    return (
        s.job_id,
        s.claim_version,
        s.from_status.value,
        s.status.value,
        now,
        s.stage,
        s.progress or 0.0,
        s.starts,
        s.refund,
        s.lease_lost,
        s.refreshed,
        s.result,
        s.error,
        s.fresh_attempts,
        s.cancel_reason,
        s.delay_ms,
        next_positions(db, 1) if s.status is Status.QUEUED else None,
        s.event is not None,
        s.expired_only,
    )


def _repeated(db: Db, s: Settlement) -> Settled:
    """Whether this claim's attempt has ended with the same outcome before."""
    if s.outcome is None:
        return Settled.STALE
    row = db.execute(Q.repeated, (s.job_id, s.claim_version)).fetchone()
    return Settled.REPEATED if row and row[0] == s.outcome.value else Settled.STALE
