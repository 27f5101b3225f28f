from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from callsheet.testing import Harness, harness

from . import tasks


@pytest.fixture
async def jobs() -> AsyncIterator[Harness]:
    tasks.done.clear()
    async with harness(tasks.app) as jobs:
        yield jobs
