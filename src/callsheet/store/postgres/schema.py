"""Migrations: numbered, forward-only, all missing ones in one transaction under an advisory lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callsheet.kernel.errors import SchemaMismatch
from callsheet.store.queries import Queries, migrations_of

from .connection import connect, edge

if TYPE_CHECKING:
    from .connection import Database
    from .target import Target

PACKAGE = "callsheet.store.postgres"
Q = Queries(PACKAGE)


async def migrate(target: Target) -> list[str]:
    """Run the missing migrations on a separate connection; return the names of the migrations that ran."""
    known = migrations_of(PACKAGE)
    session = await connect(target)
    try:
        with edge():
            async with session.transaction():
                await session.execute(Q.schema_lock)
                await session.execute(Q.schema_create)
                have = await session.fetchval(Q.schema_version)
                _refuse_newer(have, known[-1].number)
                missing = [m for m in known if m.number > have]
                for migration in missing:
                    await session.execute(migration.sql)
                    await session.execute(Q.schema_note, migration.number, migration.name)
        return [m.name for m in missing]
    finally:
        await session.close()


async def check(db: Database) -> None:
    """Raise SchemaMismatch unless the database has exactly this program's schema."""
    need = migrations_of(PACKAGE)[-1].number
    ((exists,),) = await db.fetch(Q.schema_exists)
    have = (await db.fetch(Q.schema_version))[0][0] if exists else 0
    _refuse_newer(have, need)
    if have < need:
        found = f"has schema {have}" if have else "has no callsheet schema"
        raise SchemaMismatch(f"the database {found}, this program needs {need}; run `callsheet migrate`")


def _refuse_newer(have: int, known: int) -> None:
    if have > known:
        raise SchemaMismatch(f"the database has schema {have}, this program knows {known}; upgrade callsheet")
