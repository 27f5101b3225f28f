"""Migrations, numbered and forward-only, and steps of the clock: changes to the whole PostgreSQL database."""

from __future__ import annotations

from typing import Any

from callsheet.kernel.errors import SchemaMismatch
from callsheet.store.clock import TOLERANCE_MS, ClockStep, Rebased
from callsheet.store.queries import Queries, migrations_of

from .connection import Database, Target, connect, edge

PACKAGE = "callsheet.store.postgres"
Q = Queries(PACKAGE)
LONGEST_S = 600  # a command on millions of rows; other commands may take a minute
REBASE_BLOCKED = Q.rebase_delayed.replace(
    "held = 'delay'", "held = 'dependency'"
)  # each statement has an index of its own


async def migrate(target: Target) -> list[str]:
    """Run the missing migrations on a separate connection; return the names of the migrations that ran."""
    migrations = migrations_of(PACKAGE)
    session = await connect(target)
    try:
        with edge():
            async with session.transaction():
                await session.execute(Q.schema_lock)
                await session.execute(Q.schema_create)
                have = await session.fetchval(Q.schema_version)
                _refuse_newer(have, migrations[-1].number)
                missing = [m for m in migrations if m.number > have]
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
        state = f"has schema {have}" if have else "has no callsheet schema"
        raise SchemaMismatch(f"the database {state}, this program needs {need}; run `callsheet migrate`")


def _refuse_newer(have: int, newest: int) -> None:
    if have > newest:
        raise SchemaMismatch(f"the database has schema {have}, this program knows {newest}; upgrade callsheet")


async def rebase(session: Any, step: ClockStep) -> Rebased:
    """Move leases, and after a step back all waiting times; return how many rows moved.

    Leases come last: a heartbeat skips locked rows, and delays take 4.9 s per 100,000.
    """

    async def move(sql: str, *parameters: int) -> int:
        count: int = await session.fetchval(sql, *parameters, timeout=LONGEST_S)
        return count

    jobs = callbacks = 0
    if step.shift_ms < 0:
        of_delays = (step.before, step.after, step.since or 0)
        jobs = await move(Q.rebase_delayed, *of_delays) + await move(REBASE_BLOCKED, *of_delays)
        callbacks = await move(Q.rebase_callbacks, step.before, step.after)
    of_leases = (step.before, step.after, TOLERANCE_MS)
    callbacks += await move(Q.rebase_deliveries, *of_leases)
    return Rebased(jobs, await move(Q.rebase_leases, *of_leases), callbacks)
