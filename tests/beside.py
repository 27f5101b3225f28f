"""What runs beside a test: a worker; and how a test waits for a fact."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any

from callsheet import Callsheet, Worker


@contextlib.asynccontextmanager
async def beside(worker: Worker) -> AsyncIterator[Worker]:
    """A worker that runs, stopped hard at the end."""
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop(hard=True)
        await task


def working(app: Callsheet, **options: Any) -> contextlib.AbstractAsyncContextManager[Worker]:
    """A worker of an app beside the test."""
    return beside(app.worker(**{"poll": 0.2, "grace": 2.0, "drain": 5.0, **options}))


async def until(fact: Callable[[], Any], within_s: float = 60.0) -> None:
    """Wait for a fact, which may have to be awaited."""
    async with asyncio.timeout(within_s):
        while not (await answer if inspect.isawaitable(answer := fact()) else answer):
            await asyncio.sleep(0.005)
