"""SQL of a test's own on a catalogue's database."""

from __future__ import annotations

from typing import Any

from callsheet.catalog.postgres.store import PostgresCatalog
from callsheet.catalog.protocol import Catalog
from callsheet.catalog.sqlite.store import SqliteCatalog


async def run(catalog: Catalog, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of one statement."""
    if isinstance(catalog, PostgresCatalog):
        return [tuple(row) for row in await catalog._db.fetch(sql)]
    assert isinstance(catalog, SqliteCatalog)
    rows: list[tuple[Any, ...]] = await catalog._writer.run(lambda db: db.execute(sql).fetchall())
    return rows
