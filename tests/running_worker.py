"""Run a worker during a test, and wait until a condition holds."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any

from callsheet import Callsheet, Worker


@contextlib.asynccontextmanager
async def running_worker(worker: Worker) -> AsyncIterator[Worker]:
    """Run `worker` during the block; stop it hard at the end."""
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop(hard=True)
        await task


def working(app: Callsheet, **options: Any) -> contextlib.AbstractAsyncContextManager[Worker]:
    """Run a worker of `app` during the block."""
    return running_worker(app.worker(**{"poll": 0.2, "grace": 2.0, "drain": 5.0, **options}))


async def until(condition: Callable[[], Any], within_s: float = 60.0) -> None:
    """Wait until `condition()`, possibly a coroutine, is true."""
    async with asyncio.timeout(within_s):
        while not (await answer if inspect.isawaitable(answer := condition()) else answer):
            await asyncio.sleep(0.005)
