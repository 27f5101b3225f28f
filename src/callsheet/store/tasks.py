"""The end of background tasks, and waiting for an event with a limit."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

PATIENCE_S = 1.0


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks, in their order, and wait; again for one whose library swallowed the cancellation, as some do."""
    waiting = list(tasks)
    while waiting:
        for task in waiting:
            task.cancel()
        done, _ = await asyncio.wait(waiting, timeout=PATIENCE_S)
        waiting = [task for task in waiting if task not in done]


async def wait(event: asyncio.Event, patience_s: float) -> None:
    """For an event, but not longer than that; `wait_for` of Python 3.11 can swallow a cancellation."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience_s):
            await event.wait()
