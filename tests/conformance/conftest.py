from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests import stores
from tests.kit import Kit


@pytest.fixture(params=stores.ALL)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
async def kit(kind: str) -> AsyncIterator[Kit]:
    """An empty store of each kind with a virtual clock."""
    store = await stores.open_store(stores.fresh_url(kind))
    yield Kit(store)
    await store.close()
