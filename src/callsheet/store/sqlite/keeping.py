"""What keeps a SQLite file in order, inside a transaction: its schema, its line of jobs, its retention."""

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
    """Run the migrations that are missing; their names."""
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
    """Bring due jobs into line, and those whose slot came free while nobody was there to say so."""
    queues = db.execute(Q.delayed_queues).fetchall()
    due = sum(line_up_due(db, queue, now) for (queue,) in queues)
    return due + sum(admit(db, key) for (key,) in db.execute(Q.keys_waiting).fetchall())


def prune(db: Db, ended_before: int, limit: int, now: int) -> int:
    """Delete ended jobs with all that hangs on them, and expired keys; how many jobs."""
    db.execute(Q.prune_orphans, (ended_before, limit))
    gone = db.execute(Q.prunable, (ended_before, now, limit)).fetchall()
    _forget(db, gone)
    db.execute(Q.prune_keys, (now,))
    return len(gone)


def delete(db: Db, claims: Sequence[Claim]) -> int:
    """Delete those that have ended, each by the claim that it ended with; how many."""
    gone = [(claim.job_id,) for claim in dict.fromkeys(claims) if db.execute(Q.deletable, claim).fetchone()]
    _forget(db, gone)
    return len(gone)


def _forget(db: Db, gone: Sequence[tuple[str]]) -> None:
    """Delete jobs with all that hangs on them; callbacks stay until they are delivered."""
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
