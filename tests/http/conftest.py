from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests import stores
from tests.http.live import Live, serving


@pytest.fixture
async def live(url: str) -> AsyncIterator[Live]:
    """A server on each of the three stores."""
    async with serving(url) as live:
        yield live


@pytest.fixture
async def small() -> AsyncIterator[Live]:
    """A server on SQLite, for what has nothing to do with the store."""
    async with serving(stores.fresh_url("sqlite")) as live:
        yield live
