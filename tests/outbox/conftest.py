from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from callsheet.engine import Engine
from callsheet.outbox import Endpoints
from tests import stores
from tests.outbox import kit
from tests.outbox.sink import Sink


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    """A SQLite file: tests/conformance covers all stores, this folder covers delivery."""
    engine = Engine.from_url(stores.fresh_url("sqlite"))
    async with engine:
        yield engine


@pytest.fixture
def endpoints(engine: Engine) -> Endpoints:
    return kit.endpoints(engine.store)


@pytest.fixture
async def sink() -> AsyncIterator[Sink]:
    async with Sink() as sink:
        yield sink
