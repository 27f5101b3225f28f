"""Schema, promotion of due jobs, retention, and steps of the clock, inside a SQLite transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from callsheet.kernel.errors import SchemaMismatch
from callsheet.kernel.job import Claim
from callsheet.store.clock import TOLERANCE_MS, ClockStep, Rebased
from callsheet.store.queries import Queries, migrations_of

from .line import admit, line_up_due

if TYPE_CHECKING:
    from .connection import Db

Q = Queries("callsheet.store.sqlite")
REBASE_BLOCKED = Q.rebase_delayed.replace(
    "held = 'delay'", "held = 'dependency'"
)  # each statement has an index of its own


def migrate(db: Db) -> list[str]:
    """Run the missing migrations and return their names."""
    have = db.execute("PRAGMA user_version").fetchone()[0]
    migrations = migrations_of("callsheet.store.sqlite")
    if have > migrations[-1].number:
        raise SchemaMismatch(
            f"the database has schema {have}, this program knows {migrations[-1].number}; upgrade callsheet"
        )
    missing = [m for m in migrations if m.number > have]
    for migration in missing:
        for statement in migration.sql.split(";\n"):
            if statement.strip():
                db.execute(statement)
        db.execute(f"PRAGMA user_version={migration.number}")
    return [m.name for m in missing]


def promote(db: Db, now: int) -> int:
    """Make due jobs ready, and jobs whose concurrency slot is free although no write promoted them; return how many."""
    queues = db.execute(Q.delayed_queues).fetchall()
    due = sum(line_up_due(db, queue, now) for (queue,) in queues)
    return due + sum(admit(db, key) for (key,) in db.execute(Q.keys_waiting).fetchall())


def prune(db: Db, ended_before: int, limit: int, now: int) -> int:
    """Delete ended jobs with all their rows, and expired keys; return how many jobs."""
    db.execute(Q.prune_orphans, (ended_before, limit))
    ids = db.execute(Q.prunable, (ended_before, now, limit)).fetchall()
    _forget(db, ids)
    db.execute(Q.prune_keys, (now,))
    return len(ids)


def delete(db: Db, claims: Sequence[Claim]) -> int:
    """Delete jobs that have ended with the claim given for each; return how many."""
    ids = [(claim.job_id,) for claim in dict.fromkeys(claims) if db.execute(Q.deletable, claim).fetchone()]
    _forget(db, ids)
    return len(ids)


def _forget(db: Db, ids: Sequence[tuple[str]]) -> None:
    """Delete jobs with all their rows; callbacks stay until they are delivered."""
    for sql in (
        Q.prune_events,
        Q.prune_attempts,
        Q.prune_checkpoints,
        Q.prune_dependencies,
        Q.prune_outbox,
        Q.forget_credentials,
        Q.prune_job,
    ):
        db.executemany(sql, ids)


def rebase(db: Db, step: ClockStep) -> Rebased:
    """Move leases, and after a step back all waiting times; return how many rows moved."""
    of_leases = (step.before, step.after, TOLERANCE_MS)
    leases, callbacks = _update(db, Q.rebase_leases, of_leases), _update(db, Q.rebase_deliveries, of_leases)
    if step.shift_ms > 0:
        return Rebased(0, leases, callbacks)
    of_delays = (step.before, step.after, step.since or 0)
    jobs = _update(db, Q.rebase_delayed, of_delays) + _update(db, REBASE_BLOCKED, of_delays)
    return Rebased(jobs, leases, callbacks + _update(db, Q.rebase_callbacks, of_delays[:2]))


def _update(db: Db, sql: str, parameters: tuple[int, ...]) -> int:
    db.execute(sql, parameters)
    count: int = db.execute(Q.changes).fetchone()[0]
    return count
