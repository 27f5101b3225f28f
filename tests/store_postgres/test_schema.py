from __future__ import annotations

from importlib.resources import files

import asyncpg
import pytest

from callsheet.kernel.errors import SchemaMismatch
from callsheet.kernel.job import Job
from callsheet.store.postgres import PostgresStore
from callsheet.store.queries import migrations_of
from tests import stores

PACKAGE = "callsheet.store.postgres"
CATALOG = {
    "relations": """
        SELECT relname, relkind, reloptions FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relname NOT LIKE 'callsheet_schema%' ORDER BY 1""",
    "columns": """
        SELECT c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
               a.attstorage, a.attcollation::regcollation::text, pg_get_expr(d.adbin, d.adrelid)
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE c.relnamespace = 'public'::regnamespace AND a.attnum > 0 AND c.relname NOT LIKE 'callsheet_schema%'
        ORDER BY 1, 2""",
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = 'public'::regnamespace AND conrelid <> 0
          AND conrelid::regclass::text <> 'callsheet_schema' ORDER BY 1, 2""",
    "indexes": """
        SELECT indexname, indexdef FROM pg_indexes
        WHERE schemaname = 'public' AND tablename <> 'callsheet_schema' ORDER BY 1""",
    "views": "SELECT viewname, definition FROM pg_views WHERE schemaname = 'public' ORDER BY 1",
}


async def catalog(url: str, *scripts: str) -> dict[str, list[tuple[object, ...]]]:
    session = await asyncpg.connect(url)
    try:
        for script in scripts:
            await session.execute(script)
        return {name: [tuple(row) for row in await session.fetch(sql)] for name, sql in CATALOG.items()}
    finally:
        await session.close()


async def test_the_schema_file_is_the_sum_of_the_migrations() -> None:
    whole = files(PACKAGE).joinpath("schema.sql").read_text("utf-8")
    by_file = await catalog(stores.fresh_url("postgres"), whole)
    by_steps = await catalog(stores.fresh_url("postgres"), *(m.sql for m in migrations_of(PACKAGE)))
    for name, rows in by_steps.items():
        assert rows, name
        assert by_file[name] == rows


async def test_the_columns_are_the_fields_of_a_job(store: PostgresStore) -> None:
    rows = await store._db.fetch(
        "SELECT attname::text FROM pg_attribute WHERE attrelid = 'inbox_jobs'::regclass AND attnum > 0 ORDER BY attnum"
    )
    assert [name for (name,) in rows] == ["seq", "position", "has_dependents", "began_ms", *Job._fields]


async def test_no_functions_and_no_triggers(store: PostgresStore) -> None:
    assert await store._db.fetch("SELECT 1 FROM pg_proc WHERE pronamespace = 'public'::regnamespace") == []
    assert await store._db.fetch("SELECT 1 FROM pg_trigger WHERE NOT tgisinternal") == []


async def test_an_empty_database_asks_for_migrate(url: str) -> None:
    with pytest.raises(SchemaMismatch, match="run `callsheet migrate`"):
        await PostgresStore.from_url(url).open()


async def test_a_newer_schema_asks_for_an_upgrade(store: PostgresStore, url: str) -> None:
    await store._db.fetch("INSERT INTO callsheet_schema VALUES (9999, 'the future', now())")
    with pytest.raises(SchemaMismatch, match="upgrade callsheet"):
        await PostgresStore.from_url(url).open()
    with pytest.raises(SchemaMismatch, match="upgrade callsheet"):
        await store.migrate()


async def test_migrate_runs_once(store: PostgresStore) -> None:
    assert await store.migrate() == []
