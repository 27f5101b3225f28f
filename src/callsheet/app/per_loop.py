"""One thing for each event loop that uses it."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class PerLoop(Generic[T]):
    """Opened when a loop first asks for it, and again after it could not be opened."""

    def __init__(self, opening: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._opening = opening
        self.opened: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Future[T]]
        self.opened = weakref.WeakKeyDictionary()

    async def get(self) -> T:
        """That of this event loop."""
        loop = asyncio.get_running_loop()
        opening = self.opened.get(loop)
        if opening is None or _failed(opening):
            opening = self.opened[loop] = asyncio.ensure_future(self._opening())
        return await asyncio.shield(opening)  # one caller that is cancelled does not take the others with it

    async def taken(self) -> T | None:
        """That of this event loop, for its end: it is not kept any more. None when there is none."""
        opening = self.opened.pop(asyncio.get_running_loop(), None)
        return None if opening is None or _failed(opening) else await opening


def _failed(opening: asyncio.Future[Any]) -> bool:
    return opening.done() and (opening.cancelled() or opening.exception() is not None)
