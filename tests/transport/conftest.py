from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple

import pytest
import redis as driver

from callsheet.engine import Engine
from callsheet.engine.transport import Pace, Transport
from callsheet.engine.transport import transport as transport_module
from callsheet.kernel.job import Job, NewJob
from callsheet.store.protocol import ClaimRequest, Hint
from tests import stores
from tests.store_driver import new_job

NEVER = Pace(relay_s=3_600.0, audit_s=3_600.0, idle_ms=0)
"""Chores only when a test does them; every message counts as left alone at once."""
BRISK = Pace(relay_s=0.1, audit_s=0.2, idle_ms=300)


class Stream(NamedTuple):
    """The streams of one transport as anybody else sees them."""

    redis: Any
    prefix: str = "callsheet:"

    def key(self, queue: str = "default") -> str:
        return f"{self.prefix}stream:{queue}"

    def entries(self, queue: str = "default") -> list[tuple[str, dict[str, str]]]:
        results: list[tuple[str, dict[str, str]]] = self.redis.xrange(self.key(queue))
        return results

    def stays(self, queue: str = "default") -> list[str]:
        """The enqueue ids of all messages."""
        return [fields.get("enqueue_id", "") for _, fields in self.entries(queue)]

    def pending(self, queue: str = "default") -> dict[str, str]:
        """Return message ids with their consumers."""
        if not self.redis.exists(self.key(queue)):
            return {}
        result = self.redis.xpending_range(self.key(queue), "workers", "-", "+", 10_000)
        return {entry["message_id"]: entry["consumer"] for entry in result}

    def consumers(self, queue: str = "default") -> set[str]:
        return {entry["name"] for entry in self.redis.xinfo_consumers(self.key(queue), "workers")}

    def known(self) -> dict[str, str]:
        by_name: dict[str, str] = self.redis.hgetall(f"{self.prefix}messages")
        return by_name


class Rig(NamedTuple):
    """An engine with a transport, for tests."""

    engine: Engine
    transport: Transport

    async def add(self, **fields: Any) -> NewJob:
        new = new_job(**fields)
        await self.engine.enqueue([new])
        await self.sent()
        return new

    async def claim(self, *queues: str, limit: int = 10, lease_ms: int = 30_000) -> list[Job]:
        jobs = await self.engine.claim(ClaimRequest("w", queues or ("default",), limit, lease_ms))
        await self.sent()
        return jobs

    async def settle(self, *settlements: Any) -> list[Any]:
        answers: list[Any] = await self.engine.settle(settlements)
        await self.sent()
        return answers

    async def sent(self) -> None:
        await self.transport.flush(60)


async def silence() -> AsyncIterator[Hint]:
    """The hints of a store whose processes cannot hear one another."""
    await asyncio.Event().wait()
    yield Hint()


@contextlib.asynccontextmanager
async def rigged(url: str, redis_url: str, pace: Pace = NEVER) -> AsyncIterator[Rig]:
    engine = Engine.from_url(url)
    await engine.store.migrate()
    async with engine, Transport(engine.store, redis_url, pace) as transport:
        engine.transport = transport
        yield Rig(engine, transport)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """An empty SQL store of each kind."""
    return asyncio.run(_emptied(_database())) if request.param == "postgres" else stores.fresh_url(request.param)


@functools.cache
def _database() -> str:
    """One shared database: emptying is faster than creating."""
    return stores.fresh_url("postgres")


async def _emptied(url: str) -> str:
    store = await stores.open_store(url)
    await stores.empty({"postgres": store})
    await store.close()
    return url


@pytest.fixture
def redis_url() -> str:
    return patient(stores.redis_server().fresh_url())


def patient(url: str) -> str:
    """The URL of a Redis that is waited for as long as a busy machine needs."""
    return f"{url}?socket_timeout=60&socket_connect_timeout=60"


@pytest.fixture(autouse=True)
def _messages_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for a claim's message without a time limit of 0.25 s."""
    monkeypatch.setattr(transport_module, "TAKE_S", 60.0)


@pytest.fixture
def stream(redis_url: str) -> Iterator[Stream]:
    with driver.Redis.from_url(redis_url, decode_responses=True, encoding_errors="replace") as client:
        yield Stream(client)


@pytest.fixture
async def rig(url: str, redis_url: str) -> AsyncIterator[Rig]:
    async with rigged(url, redis_url) as rig:
        yield rig
