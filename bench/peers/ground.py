"""Private servers for the peers, an empty database for each run, and what the servers counted meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import asyncpg
import redis

from bench.places import REDIS_SETTINGS, start_postgres
from tests.servers import PostgresServer, RedisServer


class Ground:
    """The servers, each started when first asked for."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @functools.cached_property
    def _postgres(self) -> PostgresServer:
        return self._stack.enter_context(start_postgres())

    @functools.cached_property
    def _redis(self) -> RedisServer:
        return self._stack.enter_context(RedisServer.start(settings=REDIS_SETTINGS))

    @functools.cached_property
    def _valkey(self) -> RedisServer:
        return self._stack.enter_context(RedisServer.start(settings=REDIS_SETTINGS, kind="valkey"))

    @contextlib.contextmanager
    def fresh(self, store: str) -> Iterator[str]:
        """The URL of an empty place; what was put there is gone afterwards."""
        match store:
            case "sqlite":
                with tempfile.TemporaryDirectory(prefix="callsheet-peers-") as folder:
                    yield f"sqlite:///{Path(folder, uuid.uuid4().hex)}.db"
            case "postgres":
                url = self._postgres.create_database()
                yield url
                name = urlsplit(url).path.removeprefix("/")
                asyncio.run(_fetch(self._postgres.url(), f"DROP DATABASE {name} WITH (FORCE)"))
            case "redis" | "valkey":
                url = (self._redis if store == "redis" else self._valkey).fresh_url()
                yield url
                with redis.Redis.from_url(url) as client:
                    client.flushdb()
            case _:
                raise ValueError(store)

    def row_counts(self, store: str, url: str) -> dict[str, int]:
        """Return the server's own counters: per database for PostgreSQL, for the whole server on Redis."""
        match store:
            case "postgres":
                query = "SELECT xact_commit FROM pg_stat_database WHERE datname = $1"
                rows = asyncio.run(_fetch(self._postgres.url(), query, urlsplit(url).path.removeprefix("/")))
                return {"transactions": int(rows[0][0])}
            case "redis" | "valkey":
                with redis.Redis.from_url(url) as client:
                    stats = client.info("stats")
                return {"commands": stats["total_commands_processed"], "reads": stats["total_reads_processed"]}
            case _:
                return {}

    def versions(self) -> dict[str, str]:
        """Return the versions of the started database servers."""
        versions = {}
        if "_postgres" in self.__dict__:
            versions["PostgreSQL"] = str(asyncio.run(_fetch(self._postgres.url(), "SHOW server_version"))[0][0])
        for server in [self.__dict__[name] for name in ("_redis", "_valkey") if name in self.__dict__]:
            with redis.Redis.from_url(server.url()) as client:
                info = client.info("server")
            name = str(info.get("server_name", "redis")).capitalize()
            versions[name] = str(info.get("valkey_version", info["redis_version"]))
        return versions


async def _fetch(url: str, query: str, *values: object) -> list[Any]:
    session = await asyncpg.connect(url)
    try:
        return await session.fetch(query, *values)
    finally:
        await session.close()
