from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from callsheet.store.postgres import PostgresStore
from tests import stores


@pytest.fixture
def url() -> str:
    """An empty database."""
    return stores.fresh_url("postgres")


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore.from_url(url)
    await store.migrate()
    await store.open()
    yield store
    await store.close()
