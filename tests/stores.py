"""Fresh, open stores for tests, one of each kind, on real servers that live as long as the test process."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import os
import shutil
import sqlite3
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from callsheet.store import store_from_url
from callsheet.store.postgres import PostgresStore
from callsheet.store.protocol import Store
from callsheet.store.redis import RedisStore
from callsheet.store.sqlite import SqliteStore
from tests import seaweed
from tests.servers import PostgresServer, RedisServer

THREE = ("sqlite", "postgres", "redis")
ALL = (*THREE, "memory", "libsql")
ROOM_BYTES = 4 << 30


@functools.cache
def postgres_server() -> PostgresServer:
    return PostgresServer.start()


@functools.cache
def redis_server() -> RedisServer:
    return RedisServer.start()


@functools.cache
def folder() -> tempfile.TemporaryDirectory[str]:
    """For SQLite's files: in memory where there is room, because a disk that others use stands still for seconds."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > ROOM_BYTES
    return tempfile.TemporaryDirectory(prefix="callsheet-test-", dir=memory if roomy else None)


def fresh_url(kind: str) -> str:
    """The URL of an empty store of a kind."""
    path = Path(folder().name, f"{uuid.uuid4().hex}.db")
    match kind:
        case "memory":
            return "sqlite::memory:"
        case "sqlite" | "libsql":
            return f"{kind}:///{path}"
        case "postgres":
            return postgres_server().create_database()
        case "redis":
            return redis_server().fresh_url()
    raise ValueError(kind)


def ready_url(kind: str) -> str:
    """Return the URL of an empty, migrated store; a copy of a schema costs a third of making it."""
    if kind != "postgres":
        return fresh_url(kind)
    return postgres_server().create_database(template=_migrated())


@functools.cache
def _migrated() -> str:
    """Return the name of the template database. Nobody may be connected to it meanwhile."""
    url = fresh_url("postgres")
    with concurrent.futures.ThreadPoolExecutor(1) as beside:  # a fixture may run on an event loop
        beside.submit(lambda: asyncio.run(store_from_url(url).migrate())).result()
    return urlsplit(url).path.removeprefix("/")


async def open_store(url: str) -> Store:
    """A store that is migrated and open."""
    store = store_from_url(url)
    await store.migrate()
    return await store.open()


def stop_servers() -> None:
    """Stop what was started."""
    seaweed.stop()
    _migrated.cache_clear()
    for start in (postgres_server, redis_server):
        if start.cache_info().currsize:
            start().stop()
            start.cache_clear()
    if folder.cache_info().currsize:
        folder().cleanup()
        folder.cache_clear()


async def empty(real: Mapping[str, Store]) -> None:
    """Bring open stores back to how they were when they were new, faster than making new ones."""
    await asyncio.gather(*(_empty(store) for store in real.values()))


async def _empty(store: Store) -> None:
    match store:
        case SqliteStore():
            await store._writer.run(_empty_sqlite)
        case PostgresStore():
            await store._db.transact(_empty_postgres)
        case RedisStore():
            await store.empty()


def _empty_sqlite(db: sqlite3.Connection) -> None:
    tables = db.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'counters'").fetchall()
    for (table,) in tables:
        db.execute(f"DELETE FROM {table}")


async def _empty_postgres(session: Any) -> None:
    tables = await session.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    for (table,) in tables:
        if table != "callsheet_schema":
            await session.fetch(f"DELETE FROM {table}")
