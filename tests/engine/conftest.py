from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from callsheet.engine import Engine
from tests import stores


@pytest.fixture(params=stores.THREE)
def url(request: pytest.FixtureRequest) -> str:
    return stores.fresh_url(request.param)


@pytest.fixture
async def engine(url: str) -> AsyncIterator[Engine]:
    engine = Engine.from_url(url)
    await engine.store.migrate()
    async with engine:
        yield engine
