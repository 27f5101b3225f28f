from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from callsheet.kernel.errors import SchemaMismatch, StoreUnavailable, UnknownStore
from callsheet.kernel.job import Job, OutboxEvent
from callsheet.store import store_from_url
from callsheet.store.queries import Queries, migrations_of
from callsheet.store.sqlite import SqliteStore

PACKAGE = "callsheet.store.sqlite"


def catalogue(*scripts: str) -> list[tuple[str, ...]]:
    """All that SQLite knows of a schema, in a form that white space does not change."""
    db = sqlite3.connect(":memory:")
    for script in scripts:
        db.executescript(script)
    rows = db.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name").fetchall()
    return [(*row[:3], " ".join((row[3] or "").split())) for row in rows]


def test_the_schema_is_the_sum_of_the_migrations() -> None:
    schema = files(PACKAGE).joinpath("schema.sql").read_text("utf-8")
    assert catalogue(schema) == catalogue(*(m.sql for m in migrations_of(PACKAGE)))


def test_migrations_are_numbered_without_a_gap() -> None:
    assert [m.number for m in migrations_of(PACKAGE)] == list(range(1, len(migrations_of(PACKAGE)) + 1))


@pytest.mark.parametrize(
    ("table", "own", "record"), [("inbox_jobs", 2, Job._fields), ("job_outbox_events", 1, OutboxEvent._fields)]
)
def test_columns_stand_in_the_order_of_the_fields(table: str, own: int, record: tuple[str, ...]) -> None:
    db = sqlite3.connect(":memory:")
    db.executescript(files(PACKAGE).joinpath("schema.sql").read_text("utf-8"))
    columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
    assert tuple(columns[own:]) == record


@pytest.mark.parametrize(
    ("query", "index"),
    [
        ("claim", "inbox_jobs_claimable"),
        ("due", "inbox_jobs_delayed"),
        ("delayed_queues", "inbox_jobs_delayed"),
        ("next_for_slot", "inbox_jobs_waiting_for_slot"),
        ("keys_waiting", "inbox_jobs_waiting_for_slot"),
        ("free_slots", "inbox_jobs_in_slot"),
        ("with_expired_lease", "inbox_jobs_leased"),
        ("claimable_of_tenants", "inbox_jobs_claimable"),
        ("claimable_by_seq", "INTEGER PRIMARY KEY"),
        ("note_running_by_seq", "INTEGER PRIMARY KEY"),
        ("claim_by_seq", "INTEGER PRIMARY KEY"),
        ("with_failed_dependency", "inbox_jobs_broken"),
        ("prunable", "inbox_jobs_ended"),
        ("active_unique", "inbox_jobs_active_unique_key"),
        ("settle", "sqlite_autoindex_inbox_jobs_1"),
        ("heartbeat", "sqlite_autoindex_inbox_jobs_1"),
        ("find_of_requester", "inbox_jobs_of_requester"),
        ("find_ended_badly", "inbox_jobs_ended_badly"),
        ("events", "PRIMARY KEY"),
        ("outbox_destinations", "job_outbox_events_due"),
        ("outbox_due", "job_outbox_events_due"),
        ("outbox_lost", "job_outbox_events_leased"),
        ("outbox_find_of_requester", "job_outbox_events_of_requester"),
    ],
)
def test_a_statement_uses_its_index(query: str, index: str) -> None:
    db = sqlite3.connect(":memory:")
    db.executescript(files(PACKAGE).joinpath("schema.sql").read_text("utf-8"))
    sql = getattr(Queries(PACKAGE), query)
    count = max(int(n) for n in range(1, 100) if f"?{n}" in sql) if "?" in sql else 0
    plan = db.execute(f"EXPLAIN QUERY PLAN {sql}", (None,) * count).fetchall()
    steps = [row[3] for row in plan]
    assert any(index in step for step in steps), steps
    assert not any(step == "SCAN inbox_jobs" for step in steps), steps
    if query in ("claim", "claimable_of_tenants"):
        assert not any("TEMP B-TREE" in step for step in steps), steps


async def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    await (await store_from_url(url).open()).close()
    db = sqlite3.connect(tmp_path / "x.db")
    db.execute("PRAGMA user_version=99")
    db.close()
    store = store_from_url(url)
    with pytest.raises(SchemaMismatch, match="upgrade"):
        await store.open()
    await store.close()


async def test_many_processes_may_migrate_at_once(tmp_path: Path) -> None:
    for attempt in range(20):
        url = f"sqlite:///{tmp_path}/{attempt}.db"
        stores = await asyncio.gather(*(store_from_url(url).open() for _ in range(8)))
        for store in stores:
            await store.close()


@pytest.mark.parametrize(
    "url",
    ["mysql://x", "nonsense", "", "sqlite:", "sqlite://x.db", "sqlite:///x.db?synchronous=off", "sqlite:///x?a=b"],
)
def test_an_unknown_url_says_what_to_use(url: str) -> None:
    with pytest.raises(UnknownStore, match=r"sqlite:///|synchronous"):
        store_from_url(url)


async def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="folder exists"):
        await store_from_url(f"sqlite:///{tmp_path}/no/such/x.db").open()


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("this is a letter, not a database " * 50)
    store = store_from_url(f"sqlite:///{tmp_path}/x.db")
    with pytest.raises(StoreUnavailable):
        await store.open()


def test_a_url_names_its_file() -> None:
    for url, path in {
        "sqlite:///jobs.db": "jobs.db",
        "sqlite:////var/lib/jobs.db": "/var/lib/jobs.db",
        "sqlite:///a%20b.db": "a b.db",
        "sqlite::memory:": ":memory:",
    }.items():
        assert SqliteStore.from_url(url).target.path == path


def test_the_command_line_migrates(tmp_path: Path) -> None:
    def run() -> str:
        return subprocess.run(
            [sys.executable, "-c", "from callsheet.cli import main; main()", "migrate"],
            env={**os.environ, "CALLSHEET_DATABASE_URL": f"sqlite:///{tmp_path}/x.db", "PYTHONPATH": "src"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    assert "applied 0001_engine" in run()
    assert "up to date" in run()


def test_the_command_line_says_what_is_wrong_in_one_line() -> None:
    run = subprocess.run(
        [sys.executable, "-c", "from callsheet.cli import main; main()", "migrate", "--database-url", "mysql://x"],
        env={**os.environ, "PYTHONPATH": "src"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 2
    assert run.stderr.startswith("callsheet: no store for scheme 'mysql'")
    assert "Traceback" not in run.stderr
