from __future__ import annotations

import functools
from collections.abc import AsyncIterator

import pytest

from tests import stores
from tests.store_driver import StoreDriver


@functools.cache
def postgres_url() -> str:
    """Return one shared database's URL for this folder.

    Each test empties the database, which is faster than creating one.
    """
    return stores.fresh_url("postgres")


@pytest.fixture(params=stores.ALL)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
async def driver(kind: str) -> AsyncIterator[StoreDriver]:
    """An empty store of each kind with a virtual clock."""
    store = await stores.open_store(postgres_url() if kind == "postgres" else stores.fresh_url(kind))
    if kind == "postgres":
        await stores.empty({kind: store})
    yield StoreDriver(store)
    await store.close()
