"""The catalogue's schema in a SQLite file, inside a transaction."""

from __future__ import annotations

import time

from callsheet.kernel.errors import SchemaMismatch
from callsheet.store.queries import Queries, migrations_of
from callsheet.store.sqlite import SqliteStore
from callsheet.store.sqlite.connection import Db, Thread

PACKAGE = "callsheet.catalog.sqlite"
Q = Queries(PACKAGE)


def migrate(db: Db, now: int) -> list[str]:
    """Run the missing migrations, return their names; beside an engine's tables, create contract 002's view `jobs`."""
    if not db.execute(Q.schema_exists).fetchone()[0]:
        _refuse_taken(db)
        db.execute(Q.schema_create)
    have = db.execute(Q.schema_version).fetchone()[0]
    migrations = migrations_of(PACKAGE)
    if have > migrations[-1].number:
        raise SchemaMismatch(
            f"the catalogue has schema {have}, this program knows {migrations[-1].number}; upgrade callsheet"
        )
    missing = [m for m in migrations if m.number > have]
    for migration in missing:
        for statement in migration.sql.split(";\n"):
            if statement.strip():
                db.execute(statement)
        db.execute(Q.schema_note, (migration.number, migration.name, now))
    return [f"catalogue {m.name}" for m in missing] + _show_jobs(db)


async def migrate_file(url: str) -> list[str]:
    """Run the missing migrations in the file of a URL, on a separate connection; return their names."""
    thread = Thread(SqliteStore.from_url(url).target, writes=True)
    await thread.start()
    try:
        return await thread.run(lambda db: migrate(db, time.time_ns() // 1_000_000))
    finally:
        await thread.stop()


def _refuse_taken(db: Db) -> None:
    names = [name for (name,) in db.execute(Q.taken_names).fetchall()]
    if names:
        advice = "set CALLSHEET_CATALOG_URL to another database, or to `off`"
        raise SchemaMismatch(f"the database has {', '.join(names)} of somebody else; {advice}")


def _show_jobs(db: Db) -> list[str]:
    """Create the contract's view `jobs` if the engine's tables, which may come after the catalogue's, are here."""
    if not db.execute(Q.engine_is_here).fetchone()[0] or db.execute(Q.jobs_view_is_here).fetchone()[0]:
        return []
    db.execute(Q.jobs_view_drop)
    db.execute(Q.jobs_view)
    return ["catalogue jobs view"]
