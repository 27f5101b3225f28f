from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import stores


@pytest.fixture(scope="session", autouse=True)
def _servers_end_with_the_session() -> Iterator[None]:
    yield
    stores.stop_servers()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "guarantee(*ids): the numbered guarantees that a test proves")
