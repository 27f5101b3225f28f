from __future__ import annotations

import functools
from collections.abc import AsyncIterator

import pytest

from tests import stores
from tests.http.live import Live, serving


@functools.cache
def postgres_url() -> str:
    """Return one shared database's URL for this folder; each finds it empty. Making one costs half a second."""
    return stores.fresh_url("postgres")


@pytest.fixture(params=stores.THREE)
def url(request: pytest.FixtureRequest) -> str:
    """An empty store of each kind."""
    return postgres_url() if request.param == "postgres" else stores.fresh_url(request.param)


@pytest.fixture
async def live(url: str) -> AsyncIterator[Live]:
    """A running server per store."""
    async with serving(url) as live:
        await stores.empty({url: live.engine.store})
        yield live


@pytest.fixture
async def small() -> AsyncIterator[Live]:
    """A server on SQLite, for tests independent of the store."""
    async with serving(stores.fresh_url("sqlite")) as live:
        yield live
