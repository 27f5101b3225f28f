"""A background thread with an event loop, which runs coroutines for threads that have no event loop."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar

from callsheet.kernel.errors import InvalidInput

T = TypeVar("T")
STOP_S = 5.0
_live: weakref.WeakSet[Background] = weakref.WeakSet()


class Background:
    """An event loop in a daemon thread, started on first use; the thread does not keep the process alive."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = False
        _live.add(self)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result. An interrupt of the caller (Ctrl-C) first cancels the coroutine."""
        try:
            _refuse_event_loop()
            asked = asyncio.run_coroutine_threadsafe(work, self._running())
        except BaseException:
            work.close()
            raise
        try:
            return asked.result()
        except BaseException:
            if asked.cancel() and self._loop is not None:
                asyncio.run_coroutine_threadsafe(_ended(work), self._loop).result(STOP_S)
            raise

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Yield the items of an async iterator, and close the iterator at the end."""
        end: Any = object()
        try:
            while (item := self.run(_next(items, end))) is not end:
                yield item
        finally:
            close = getattr(items, "aclose", None)
            if close is not None and not self._stopped:
                self.run(close())

    def stop(self, closing: Callable[[], Awaitable[None]]) -> None:
        """Run `closing`, cancel all remaining tasks, stop the loop. Safe to call twice."""
        with self._lock:
            loop, self._loop, self._stopped = self._loop, None, True
        if loop is not None:
            asked = asyncio.run_coroutine_threadsafe(_finish(closing), loop)
            concurrent.futures.wait([asked], timeout=STOP_S)
            loop.call_soon_threadsafe(loop.stop)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._stopped:
                raise InvalidInput("this client is closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=_serve, args=[self._loop], name="callsheet-client", daemon=True).start()
            return self._loop


@atexit.register
def _stop_all() -> None:
    """Stop all loops at exit: an unfinished iterator must not wait for a loop whose thread has ended."""
    for background in list(_live):
        background.stop(_nothing)


async def _nothing() -> None:
    pass


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


async def _finish(closing: Callable[[], Awaitable[None]]) -> None:
    await closing()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _ended(work: Coroutine[Any, Any, Any]) -> None:
    """Wait for the cancelled task to end, because a busy async iterator cannot be closed."""
    tasks = [task for task in asyncio.all_tasks() if task.get_coro() is work]
    if tasks:
        await asyncio.wait(tasks)


async def _next(items: AsyncIterator[Any], end: object) -> Any:
    return await anext(items, end)


def _refuse_event_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise InvalidInput("SyncClient would block this event loop; use Client and await it")
