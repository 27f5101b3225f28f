"""Move waiting times in a SQLite file by a step of the clock, inside a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callsheet.store.clock import TOLERANCE_MS, ClockStep, Rebased
from callsheet.store.queries import Queries

if TYPE_CHECKING:
    from .connection import Db

Q = Queries("callsheet.store.sqlite")
BLOCKED = Q.rebase_delayed.replace("held = 'delay'", "held = 'dependency'")  # each statement has an index of its own


def rebase(db: Db, step: ClockStep) -> Rebased:
    """Move leases, and after a step back all waiting times; return how many rows moved."""
    of_leases = (step.before, step.after, TOLERANCE_MS)
    leases, callbacks = _update(db, Q.rebase_leases, of_leases), _update(db, Q.rebase_deliveries, of_leases)
    if step.shift_ms > 0:
        return Rebased(0, leases, callbacks)
    of_delays = (step.before, step.after, step.since or 0)
    jobs = _update(db, Q.rebase_delayed, of_delays) + _update(db, BLOCKED, of_delays)
    return Rebased(jobs, leases, callbacks + _update(db, Q.rebase_callbacks, of_delays[:2]))


def _update(db: Db, sql: str, parameters: tuple[int, ...]) -> int:
    db.execute(sql, parameters)
    count: int = db.execute(Q.changes).fetchone()[0]
    return count
