"""`PerLoop`: one opened resource, such as an engine, per event loop."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class PerLoop(Generic[T]):
    """Opens a resource on its first use in an event loop; after a failed opening, the next use tries again."""

    def __init__(self, opening: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._opening = opening
        self.resources: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Future[T]]
        self.resources = weakref.WeakKeyDictionary()

    async def get(self) -> T:
        """Return this event loop's resource, opened on first use."""
        loop = asyncio.get_running_loop()
        opening = self.resources.get(loop)
        if opening is None or _has_failed(opening):
            opening = self.resources[loop] = asyncio.ensure_future(self._opening())
        return await asyncio.shield(opening)  # one caller that is cancelled does not take the others with it

    async def take(self) -> T | None:
        """Remove and return this event loop's resource, for closing; None if no resource is open."""
        opening = self.resources.pop(asyncio.get_running_loop(), None)
        return None if opening is None or _has_failed(opening) else await opening


def _has_failed(opening: asyncio.Future[Any]) -> bool:
    return opening.done() and (opening.cancelled() or opening.exception() is not None)
