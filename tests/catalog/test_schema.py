from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from callsheet.catalog import BESIDE_REDIS, catalog_url, migrate_catalog, open_catalog
from callsheet.kernel.errors import SchemaMismatch, UnknownStore
from callsheet.store import store_from_url
from tests import stores
from tests.catalog.kit import ready
from tests.catalog.sql import run


async def test_migrations_run_once_however_many_run_them(fresh_url: str) -> None:
    ran = await asyncio.gather(*(migrate_catalog(fresh_url) for _ in range(4)))
    assert sorted(map(bool, ran)) == [False, False, False, True]
    assert "catalogue 0001_catalog" in max(ran, key=len)
    assert await open_catalog(fresh_url).migrate() == []


async def test_the_catalogue_and_the_jobs_share_a_database_whichever_came_first(fresh_url: str) -> None:
    await migrate_catalog(fresh_url)
    await store_from_url(fresh_url).migrate()
    assert await migrate_catalog(fresh_url) == ["catalogue jobs view"]
    assert await migrate_catalog(fresh_url) == []
    store = await stores.open_store(fresh_url)
    catalog = open_catalog(fresh_url)
    await catalog.open()
    try:
        await ready(catalog, "hello")
        assert await run(catalog, "SELECT id, video_id, job_type, status FROM jobs") == []
    finally:
        await catalog.close()
        await store.close()


async def test_a_database_without_a_catalogue_asks_for_migrate() -> None:
    with pytest.raises(SchemaMismatch, match="run `callsheet migrate`"):
        await open_catalog(stores.fresh_url("postgres")).open()


async def test_a_file_is_migrated_when_it_is_opened() -> None:
    catalog = open_catalog(stores.fresh_url("sqlite"))
    await catalog.open()
    await ready(catalog, "hello")
    await catalog.close()


async def test_a_newer_schema_asks_for_an_upgrade(fresh_url: str) -> None:
    catalog = open_catalog(fresh_url)
    await catalog.migrate()
    await catalog.open()
    await run(catalog, "INSERT INTO catalog_schema VALUES (9999, 'the future', '2030-01-01')")
    await catalog.close()
    for again in (catalog.open, catalog.migrate):
        with pytest.raises(SchemaMismatch, match="upgrade callsheet"):
            await again()
    await catalog.close()


async def test_tables_of_somebody_else_are_left_alone(fresh_url: str) -> None:
    other = await stores.open_store(fresh_url)
    await other.close()
    catalog = open_catalog(fresh_url)
    await catalog.migrate()
    await catalog.open()
    for table in ("catalog_schema", "entities"):
        await run(catalog, f"DROP TABLE {table}")
    await catalog.close()
    with pytest.raises(SchemaMismatch, match=r"has .*videos.* of somebody else; set CALLSHEET_CATALOG_URL"):
        await migrate_catalog(fresh_url)
    await catalog.close()


def test_the_catalogue_is_where_the_jobs_are_unless_somebody_says_else() -> None:
    for query, database_url, where in (
        (None, "sqlite:///a.db", "sqlite:///a.db"),
        ("", "postgresql://x/y", "postgresql://x/y"),
        ("postgresql://x/z", "sqlite:///a.db", "postgresql://x/z"),
        (None, "redis://x", BESIDE_REDIS),
        ("sqlite:///b.db", "redis://x", "sqlite:///b.db"),
        ("off", "sqlite:///a.db", None),
    ):
        assert catalog_url(query, database_url) == where


async def test_a_url_of_no_database_is_refused() -> None:
    for url in ("redis://localhost", "mysql://x", "", "nonsense"):
        with pytest.raises(UnknownStore, match="no catalogue for scheme"):
            open_catalog(url)
        with pytest.raises(UnknownStore, match="no catalogue for scheme"):
            await migrate_catalog(url)


async def test_a_catalogue_lives_in_memory_too(tmp_path: Path) -> None:
    catalog = open_catalog("sqlite::memory:")
    await catalog.open()
    await ready(catalog, "hello")
    await catalog.close()
    await catalog.close()
