"""A PostgreSQL plan as it ran, over pages that are in the same state in every run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

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


def nodes_of(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes_of(child)
