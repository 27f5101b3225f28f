from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio
import redis.asyncio

from callsheet.store.redis import RedisStore
from tests import stores


@pytest_asyncio.fixture
async def store() -> AsyncIterator[RedisStore]:
    client = await RedisStore.from_url(stores.fresh_url("redis")).open()
    yield client
    await client.close()


@pytest_asyncio.fixture
async def client(store: RedisStore) -> AsyncIterator[Any]:
    """What a foreign program sees: the same database through a plain driver."""
    client = redis.asyncio.Redis.from_url(store.target.url, decode_responses=True)
    yield client
    await client.aclose()
