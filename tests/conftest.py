from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from callsheet.engine import Engine
from tests import stores


@pytest.fixture(scope="session", autouse=True)
def _servers_end_with_the_session() -> Iterator[None]:
    yield
    stores.stop_servers()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "guarantee(*ids): the numbered guarantees that a test proves")


@pytest.fixture(params=stores.THREE)
def url(request: pytest.FixtureRequest) -> str:
    """An empty store of each kind."""
    return stores.fresh_url(request.param)


@pytest.fixture
async def engine(url: str) -> AsyncIterator[Engine]:
    engine = Engine.from_url(url)
    await engine.store.migrate()
    async with engine:
        yield engine
