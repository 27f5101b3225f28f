"""Helpers for asyncio: end background tasks, and wait for an event with a time limit."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

PATIENCE_S = 1.0


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks, in their order, and wait for their end; cancel again if a library swallowed the cancellation."""
    waiting = list(tasks)
    while waiting:
        for task in waiting:
            task.cancel()
        done, _ = await asyncio.wait(waiting, timeout=PATIENCE_S)
        waiting = [task for task in waiting if task not in done]


async def wait(event: asyncio.Event, patience_s: float) -> None:
    """Wait for an event, at most `patience_s`; `wait_for` of Python 3.11 can swallow a cancellation."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience_s):
            await event.wait()
