"""Fresh, open stores for tests, one of each kind, on real servers that live as long as the test process."""

from __future__ import annotations

import functools
import tempfile
import uuid
from pathlib import Path

from callsheet.store import store_from_url
from callsheet.store.protocol import Store
from tests.servers import PostgresServer, RedisServer

THREE = ("sqlite", "postgres", "redis")
ALL = (*THREE, "memory", "libsql")


@functools.cache
def postgres_server() -> PostgresServer:
    return PostgresServer.start()


@functools.cache
def redis_server() -> RedisServer:
    return RedisServer.start()


@functools.cache
def folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="callsheet-test-")


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


async def open_store(url: str) -> Store:
    """A store that is migrated and open."""
    store = store_from_url(url)
    await store.migrate()
    return await store.open()


def stop_servers() -> None:
    """Stop what was started."""
    for start in (postgres_server, redis_server):
        if start.cache_info().currsize:
            start().stop()
            start.cache_clear()
    if folder.cache_info().currsize:
        folder().cleanup()
        folder.cache_clear()
