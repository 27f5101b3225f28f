from __future__ import annotations

import functools
from collections.abc import AsyncIterator

import pytest

from tests import stores
from tests.kit import Kit


@functools.cache
def postgres_url() -> str:
    """One database for all tests of this folder; each finds it empty, which is quicker than to make one."""
    return stores.fresh_url("postgres")


@pytest.fixture(params=stores.ALL)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
async def kit(kind: str) -> AsyncIterator[Kit]:
    """An empty store of each kind with a virtual clock."""
    store = await stores.open_store(postgres_url() if kind == "postgres" else stores.fresh_url(kind))
    if kind == "postgres":
        await stores.empty({kind: store})
    yield Kit(store)
    await store.close()
