"""The line of claimable jobs inside a SQLite transaction: functions that add jobs to the line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callsheet.kernel.job import HoldReason, OnDependencyFailure, Status
from callsheet.store.queries import Queries

if TYPE_CHECKING:
    from .connection import Db

Q = Queries("callsheet.store.sqlite")
BATCH = 1_000


def next_positions(db: Db, count: int) -> int:
    """Reserve `count` positions at the end of the line and return the first."""
    value: int = db.execute(Q.next_positions, (count,)).fetchone()[0]
    return value - count + 1


def line_up_due(db: Db, queue: str, now: int) -> int:
    """Move a queue's due jobs to the line, ordered by their time; return how many were due."""
    due = db.execute(Q.due, (queue, now, BATCH)).fetchall()
    for seq, key in due:
        if key is None:
            db.execute(Q.line_up, (seq, next_positions(db, 1)))
        else:
            db.execute(Q.wait_for_slot, (seq,))
    for key in dict.fromkeys(key for _, key in due if key is not None):
        admit(db, key)
    return len(due)


def admit(db: Db, key: str) -> int:
    """Move jobs of a concurrency key to the line while it has free slots; return how many."""
    row = db.execute(Q.free_slots, (key,)).fetchone()
    free = row[0] if row else 0
    waiting = db.execute(Q.next_for_slot, (key, free)).fetchall() if free > 0 else []
    for (seq,) in waiting:
        db.execute(Q.line_up, (seq, next_positions(db, 1)))
    return len(waiting)


def release_dependents(db: Db, parent: str, status: Status, now: int) -> None:
    """Update the jobs that depend on `parent` after its end: unblock them, or mark their dependency as failed."""
    for seq, job_id, blocked_by, run_at, key, on_failure in db.execute(Q.dependents, (parent,)).fetchall():
        if status is not Status.SUCCEEDED and on_failure == OnDependencyFailure.CANCEL:
            db.execute(Q.break_dependent, (seq, parent))
            continue
        db.execute(Q.undepend, (parent, job_id))
        held = HoldReason.DELAY.value if run_at > now else (HoldReason.SLOT.value if key is not None else None)
        db.execute(Q.unblock, (seq, held, next_positions(db, 1)))
        if blocked_by == 1 and held == HoldReason.SLOT:
            admit(db, key)
