"""Where the benches put their data: fresh files and databases, on private servers that live as long as the run.

The servers are those of the tests, with settings that keep a checkpoint or a rewrite of the append-only file from
falling into one round and not into the next. These settings do not weaken the durability of an acknowledged write.
"""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import redis.asyncio

from tests.servers import PostgresServer, RedisServer

POSTGRES_SETTINGS = {
    "shared_buffers": "512MB",
    "min_wal_size": "3GB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "1h",
    "fsync": "on",
    "synchronous_commit": "on",
}
REDIS_SETTINGS = {
    "appendonly": "yes",
    "appendfsync": "everysec",
    "auto-aof-rewrite-percentage": "0",
}


# A server that has run for a while uses the files of its log again. To make one takes 25 to 50 ms, a tenth of a drain, in
# one round and not in the next.
FILES_OF_LOG = """
DO $$ BEGIN
    FOR i IN 1..190 LOOP PERFORM pg_logical_emit_message(false, 'bench', ''); PERFORM pg_switch_wal(); END LOOP;
END $$"""


def start_postgres() -> PostgresServer:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(PostgresServer.start(settings=POSTGRES_SETTINGS))
        server.psql(FILES_OF_LOG)
        server.psql("CHECKPOINT")
        stack.pop_all()
    return server


@functools.cache
def postgres_server() -> PostgresServer:
    return start_postgres()


@functools.cache
def redis_server() -> RedisServer:
    return RedisServer.start(settings=REDIS_SETTINGS)


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="callsheet-bench-")


def stop() -> None:
    """Stop the servers and remove the files."""
    for start in (postgres_server, redis_server):
        if start.cache_info().currsize:
            start().stop()
            start.cache_clear()
    if _folder.cache_info().currsize:
        _folder().cleanup()
        _folder.cache_clear()


@contextlib.asynccontextmanager
async def fresh(kind: str) -> AsyncIterator[str]:
    """The URL of an empty place for a store of this kind; what was put there is gone afterwards."""
    match kind:
        case "sqlite":
            path = Path(_folder().name, f"{uuid.uuid4().hex}.db")
            yield f"sqlite:///{path}"
            for suffix in ("", "-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            os.sync()
        case "postgres":
            url = postgres_server().create_database()
            yield url
            await _drop_database(url)
        case "redis":
            url = redis_server().fresh_url()
            yield url
            async with redis.asyncio.Redis.from_url(url) as client:
                await client.flushdb()
        case _:
            raise ValueError(kind)


async def _drop_database(url: str) -> None:
    """Drop it, so that no vacuum of its leftovers runs into the next round."""
    session = await asyncpg.connect(postgres_server().url())
    await session.execute(f"DROP DATABASE {urlsplit(url).path.removeprefix('/')} WITH (FORCE)")
    await session.close()


async def server_versions() -> dict[str, str]:
    """Return the versions of the started database servers."""
    versions = {}
    if postgres_server.cache_info().currsize:
        session = await asyncpg.connect(postgres_server().url())
        versions["PostgreSQL"] = str(await session.fetchval("SHOW server_version"))
        await session.close()
    if redis_server.cache_info().currsize:
        async with redis.asyncio.Redis.from_url(redis_server().url()) as client:
            info = await client.info("server")
        name = str(info.get("server_name", "redis")).capitalize()
        versions[name] = str(info.get("valkey_version", info["redis_version"]))
    return versions
