"""The catalogue's schema in PostgreSQL, and its pool: the engine's, with settings for searches without indexes."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, TypeVar

from callsheet.kernel.contracts import CORTANA, read_policy
from callsheet.kernel.errors import SchemaMismatch, StoreError
from callsheet.store.postgres.connection import SETTINGS, Database, Target, connect, edge
from callsheet.store.queries import Queries, migrations_of

T = TypeVar("T")
PACKAGE = "callsheet.catalog.postgres"
Q = Queries(PACKAGE)
KEPT = ("jit", "lock_timeout", "idle_in_transaction_session_timeout", "tcp_keepalives_idle", "tcp_keepalives_interval")


class CatalogDatabase(Database):
    """A small pool. All statements within one `read` see the same snapshot of the database."""

    settings: ClassVar[Mapping[str, str]] = {
        "application_name": "callsheet catalogue",
        **{name: SETTINGS[name] for name in KEPT},
    }
    transaction_settings: ClassVar[str] = Q.plan_freely

    async def read(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Run `work` in one read-only, repeatable-read transaction and return its result."""
        async with self._session() as session, session.transaction(isolation="repeatable_read", readonly=True):
            if self.target.is_pooled:
                await session.execute(self.transaction_settings)
            return await work(session)


ACCESS = Queries(PACKAGE, "access.sql")
JOBS = Queries(PACKAGE, "jobs.sql")
MOVES = Queries(PACKAGE, "jobs_moves.sql")
log = logging.getLogger("callsheet.catalog")


async def migrate_database(url: str) -> list[str]:
    """Run the missing migrations in the database of a URL and return their names."""
    return await migrate(Target.from_url(url))


async def migrate(target: Target) -> list[str]:
    """Run the missing migrations in one transaction on a separate connection; return their names."""
    session = await connect(target)
    session.add_log_listener(_tell)
    try:
        with edge():
            async with session.transaction():
                await session.execute(Q.schema_lock)
                ran = await _migrate_tables(session)
                return ran + await _grant_access(session) + await _show_jobs(session)
    finally:
        await session.close()


async def check(db: Database) -> None:
    """Raise SchemaMismatch unless the database has this program's catalogue, and StoreError if it would look empty."""
    need = migrations_of(PACKAGE)[-1].number
    ((exists,),) = await db.fetch(Q.schema_exists)
    if not exists:
        raise SchemaMismatch("the database has no catalogue of videos; run `callsheet migrate`")
    ((sees_all, user),) = await db.fetch(Q.sees_all)
    if not sees_all:
        advice = f'connect as the owner of its tables, or GRANT service_role TO "{user}"'
        raise StoreError(f"the catalogue shows {user} only rows of his own, by row-level security; {advice}")
    ((have,),) = await db.fetch(Q.schema_version)
    _refuse_newer(have, need)
    if have < need:
        raise SchemaMismatch(f"the catalogue has schema {have}, this program needs {need}; run `callsheet migrate`")


async def _migrate_tables(session: Any) -> list[str]:
    migrations = migrations_of(PACKAGE)
    if not await session.fetchval(Q.schema_exists):
        await _refuse_taken(session)
    await session.execute(Q.schema_create)
    have = await session.fetchval(Q.schema_version)
    _refuse_newer(have, migrations[-1].number)
    missing = [m for m in migrations if m.number > have]
    for migration in missing:
        await session.execute(migration.sql)
        await session.execute(Q.schema_note, migration.number, migration.name)
    return [f"catalogue {m.name}" for m in missing]


async def _grant_access(session: Any) -> list[str]:
    """Create missing roles if this user may, then set grants and policies. Returns the step's name if it ran."""
    digest = _digest(ACCESS)
    if await session.fetchval(Q.step_digest, "access") == digest:
        return []
    await session.execute(ACCESS.roles)
    if not await session.fetchval(ACCESS.roles_are_here):
        return []  # until the roles exist, only the owner of the tables can read them
    await session.execute(ACCESS.grants)
    await session.execute(ACCESS.policies)
    await session.execute(Q.step_note, "access", digest)
    return ["catalogue access"]


async def _show_jobs(session: Any) -> list[str]:
    """Create the contract's view `jobs` if the engine's tables, which may come after the catalogue's, are here."""
    if not await session.fetchval(Q.engine_is_here):
        return []
    has_roles = await session.fetchval(ACCESS.roles_are_here)
    tables = kernel_tables()
    digest = f"{_digest(JOBS)} {_digest(MOVES)} {sorted(tables.items())} {has_roles}"
    if await session.fetchval(Q.step_digest, "jobs") == digest and await session.fetchval(Q.jobs_view_is_here):
        return []
    for queries in (JOBS, MOVES):
        for name in queries.names():
            if name != "jobs_access":
                await session.execute(fill(getattr(queries, name), tables))
    if has_roles:
        await session.execute(JOBS.jobs_access)
    await session.execute(Q.step_note, "jobs", digest)
    return ["catalogue jobs view"]


def kernel_tables() -> dict[str, str]:
    """Return the contract's legal moves and retry policy as SQL, by the placeholder (`:word`) in `jobs_moves.sql`."""
    words = tuple(dict.fromkeys(CORTANA.words.values()))
    legal = [f"{a}>{b}" for a in words for b in words if a != b and CORTANA.allows(a, b)]
    policy = read_policy(CORTANA.policy)
    return {
        ":legal_moves": f"ARRAY[{', '.join(repr(move) for move in sorted(legal))}]",
        ":backoff_ms": f"ARRAY[{', '.join(map(str, policy.backoff.table_ms))}]",
        ":jitter_low": str(policy.backoff.low),
        ":jitter_width": str(round(policy.backoff.high - policy.backoff.low, 6)),
        ":max_lease_losses": str(policy.max_lease_losses or "job.max_attempts"),
        ":max_retries": str(policy.max_attempts - 1),
    }


def fill(sql: str, tables: Mapping[str, str]) -> str:
    """Return a statement with its placeholders replaced by the kernel's tables."""
    for word, value in tables.items():
        sql = sql.replace(word, value)
    return sql


async def _refuse_taken(session: Any) -> None:
    names = [name for (name,) in await session.fetch(Q.taken_names)]
    if names:
        advice = "set CALLSHEET_CATALOG_URL to another database, or to `off`"
        raise SchemaMismatch(f"the database has {', '.join(names)} of somebody else; {advice}")


def _refuse_newer(have: int, known: int) -> None:
    if have > known:
        raise SchemaMismatch(f"the catalogue has schema {have}, this program knows {known}; upgrade callsheet")


def _digest(queries: Queries) -> str:
    text = "\n".join(getattr(queries, name) for name in queries.names())
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _tell(_: Any, message: Any) -> None:
    """Log the server's warnings, for example about roles that the migration could not create."""
    if message.severity_en == "WARNING":
        log.warning("%s", message.message)
