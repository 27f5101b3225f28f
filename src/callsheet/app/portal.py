"""The synchronous interface: a background event loop that runs coroutines for blocking callers."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, TypeVar

from callsheet.kernel.errors import InvalidInput, ResultTimeout

T = TypeVar("T")


class Portal:
    """Starts an event loop on first use, and a new loop after a fork; `closing` runs there at the process's exit."""

    def __init__(self, closing: Callable[[], Awaitable[None]]) -> None:
        self._closing = closing
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    def run(self, awaitable: Awaitable[T], timeout_s: float | None = None) -> T:
        """Run an awaitable from a thread without an event loop and return its result; raises ResultTimeout."""
        _refuse_event_loop(awaitable)
        future = asyncio.run_coroutine_threadsafe(_await(awaitable), self._running())
        try:
            return future.result(timeout_s)
        except concurrent.futures.TimeoutError:
            if future.done():
                raise
            future.cancel()
            raise ResultTimeout(f"no answer within {timeout_s} s") from None

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Yield the items of an async iterator to blocking code."""
        end = object()
        try:
            while (item := self.run(_next(items, end))) is not end:
                yield item
        finally:
            close = getattr(items, "aclose", None)
            if close is not None:
                self.run(close())

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the background loop, started on first use."""
        return self._running()

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                self._loop, self._pid = asyncio.new_event_loop(), os.getpid()
                threading.Thread(target=self._loop.run_forever, name="callsheet-sync", daemon=True).start()
                atexit.register(self._close, self._loop, self._pid)
            return self._loop

    def _close(self, loop: asyncio.AbstractEventLoop, pid: int) -> None:
        if pid == os.getpid() and loop.is_running():
            future = asyncio.run_coroutine_threadsafe(_await(self._closing()), loop)
            concurrent.futures.wait([future], timeout=5)
            loop.call_soon_threadsafe(loop.stop)


async def _await(awaitable: Awaitable[T]) -> T:
    return await awaitable


async def _next(items: AsyncIterator[Any], end: object) -> Any:
    return await anext(items, end)


def _refuse_event_loop(awaitable: Any) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    if hasattr(awaitable, "close"):
        awaitable.close()
    raise InvalidInput("app.sync() would block this event loop; await the call instead")
