"""A SQLite file that cannot serve: locked, read-only, damaged, or on a disk that fails or is full."""

from __future__ import annotations

import contextlib
import resource
import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from callsheet.kernel.errors import Outage, StoreRefused, StoreUnavailable
from callsheet.store import store_from_url
from callsheet.store.sqlite import SqliteStore, connection
from callsheet.store.sqlite.connection import Target, connect, known_error
from tests.store_driver import new_job


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    client = await store_from_url(f"sqlite:///{tmp_path}/x.db").open()
    assert isinstance(client, SqliteStore)
    yield client
    await client.close()


@contextlib.contextmanager
def full_from(size: int) -> Iterator[None]:
    """Let writes beyond this size fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_file_that_another_program_has_locked_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BUSY_S", 0.05)
    store = await store_from_url(f"sqlite:///{tmp_path}/x.db").open()
    other = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked"):
        await store.enqueue([new_job()])
    other.execute("ROLLBACK")
    other.close()
    await store.enqueue([new_job()])
    await store.close()


async def test_a_file_that_became_read_only_is_away(store: SqliteStore) -> None:
    await store._writer.run(lambda db: db.execute("PRAGMA query_only=ON").fetchall())
    with pytest.raises(StoreUnavailable, match="readonly"):
        await store.enqueue([new_job()])
    await store._reader.run(lambda db: db.execute("SELECT 1").fetchall())


async def test_a_full_disk_is_waited_for_by_a_program_that_starts(tmp_path: Path) -> None:
    """The database file is created, but its -wal and -shm files are not."""
    with full_from(0), pytest.raises(StoreUnavailable) as excinfo:
        connect(Target(str(tmp_path / "x.db")))
    assert not isinstance(excinfo.value, StoreRefused), "a start waits for room"
    connect(Target(str(tmp_path / "x.db"))).close()


def test_a_file_that_is_no_database_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("a letter, and no database at all: it is long enough to be looked at" * 9)
    with pytest.raises(StoreRefused):
        connect(Target(str(tmp_path / "x.db")))
    with pytest.raises(StoreRefused):
        connect(Target(str(tmp_path / "no" / "x.db")))


def test_a_value_that_no_database_could_write_is_no_outage() -> None:
    db = connect(Target(":memory:"))
    with pytest.raises(UnicodeEncodeError) as excinfo:
        db.execute("SELECT ?", ("\ud800",))
    assert known_error(db, excinfo.value) is excinfo.value
    db.close()


@pytest.mark.parametrize("driver", ["sqlite", "libsql"])
def test_what_either_driver_says_of_its_file_is_an_outage(driver: str) -> None:
    db = connect(Target(":memory:", driver))
    with pytest.raises((sqlite3.OperationalError, ValueError)) as excinfo:
        db.execute("SELECT * FROM nowhere").fetchall()
    assert isinstance(known_error(db, excinfo.value), Outage)
    db.close()
