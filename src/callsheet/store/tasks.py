"""The end of background tasks."""

from __future__ import annotations

import asyncio

PATIENCE_S = 1.0


async def end(*tasks: asyncio.Task[None]) -> None:
    """Cancel tasks and wait for them; again for one whose library swallowed the cancellation, as some do."""
    waiting = set(tasks)
    while waiting:
        for task in waiting:
            task.cancel()
        _, waiting = await asyncio.wait(waiting, timeout=PATIENCE_S)
