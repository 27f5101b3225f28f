"""A PostgreSQL plan as it ran, over pages that are in the same state in every run."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg

from callsheet.store.postgres import PostgresStore
from callsheet.store.postgres.connection import SETTINGS

ALL_VISIBLE = "SELECT relpages > 0 AND relallvisible = relpages FROM pg_class WHERE oid = 'inbox_jobs'::regclass"


async def vacuum(session: Any) -> None:
    """Vacuum until every page of the jobs is marked visible to all: whether an index is read alone depends on it.

    A snapshot that another session holds just then, such as an autovacuum worker's, keeps pages from being marked.
    """
    await session.execute("ALTER TABLE inbox_jobs SET (autovacuum_enabled = off)")
    async with asyncio.timeout(60):
        while True:
            await session.execute("VACUUM ANALYZE")
            if await session.fetchval(ALL_VISIBLE):
                return
            await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def planning(url: str, how: str, *fill: tuple[Any, ...]) -> AsyncIterator[Any]:
    """A session, "direct" as a connection is set up, else as PgBouncer gives one: nothing set, a custom plan each time.

    `fill` are statements with their values, for a database without jobs.
    """
    await PostgresStore.from_url(url).migrate()
    session = await asyncpg.connect(url, server_settings=SETTINGS if how == "direct" else None)
    try:
        if not await session.fetchval("SELECT EXISTS (SELECT FROM inbox_jobs)"):
            for statement, *values in fill:
                await session.execute(statement, *values)
            await vacuum(session)
        await session.set_type_codec("uuid", schema="pg_catalog", encoder=str, decoder=str, format="text")
        yield session
    finally:
        await session.close()


def nodes_of(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes_of(child)
