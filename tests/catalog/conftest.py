from __future__ import annotations

import functools
from collections.abc import AsyncIterator

import pytest

from callsheet.catalog import open_catalog
from callsheet.catalog.postgres.store import PostgresCatalog
from callsheet.catalog.protocol import Catalog
from tests import stores

BOTH = ("sqlite", "postgres")
EMPTY = """
TRUNCATE videos, segments, entities, clips, search_materialized, search_videos, search_postings, search_terms;
UPDATE search_state SET version = version + 1;
"""


@functools.cache
def postgres_url() -> str:
    """Return the URL of one shared database: to make one takes ten times as long as to empty it."""
    return stores.fresh_url("postgres")


@pytest.fixture(params=BOTH)
def fresh_url(request: pytest.FixtureRequest) -> str:
    """An empty database of each kind."""
    return stores.fresh_url(request.param)


@pytest.fixture(params=BOTH)
def url(request: pytest.FixtureRequest) -> str:
    """Return the URL of an empty catalogue, for each database."""
    return postgres_url() if request.param == "postgres" else stores.fresh_url(request.param)


@pytest.fixture
async def catalog(url: str) -> AsyncIterator[Catalog]:
    """A catalogue that is migrated, empty and open."""
    catalog_here = open_catalog(url)
    await catalog_here.migrate()
    await catalog_here.open()
    if isinstance(catalog_here, PostgresCatalog):
        async with catalog_here._db._session() as session:
            await session.execute(EMPTY)
    yield catalog_here
    await catalog_here.close()
