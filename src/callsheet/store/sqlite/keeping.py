"""Schema, line of ready jobs, and retention of a SQLite file, inside a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callsheet.kernel.errors import SchemaMismatch
from callsheet.store.queries import Queries, migrations_of

from .line import admit, line_up_due

if TYPE_CHECKING:
    from collections.abc import Sequence

    from callsheet.kernel.job import Claim

    from .connection import Db

Q = Queries("callsheet.store.sqlite")


def migrate(db: Db) -> list[str]:
    """Run the missing migrations and return their names."""
    have = db.execute("PRAGMA user_version").fetchone()[0]
    known = migrations_of("callsheet.store.sqlite")
    if have > known[-1].number:
        raise SchemaMismatch(
            f"the database has schema {have}, this program knows {known[-1].number}; upgrade callsheet"
        )
    missing = [m for m in known if m.number > have]
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
    gone = db.execute(Q.prunable, (ended_before, now, limit)).fetchall()
    _forget(db, gone)
    db.execute(Q.prune_keys, (now,))
    return len(gone)


def delete(db: Db, claims: Sequence[Claim]) -> int:
    """Delete jobs that have ended with the claim given for each; return how many."""
    gone = [(claim.job_id,) for claim in dict.fromkeys(claims) if db.execute(Q.deletable, claim).fetchone()]
    _forget(db, gone)
    return len(gone)


def _forget(db: Db, gone: Sequence[tuple[str]]) -> None:
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
        db.executemany(sql, gone)
