"""Plain functions in threads. The threads are daemons: a hanging thread must not keep the process alive."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .context import Context
    from .definition import Definition


class _Call(NamedTuple):
    function: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


class Threads:
    """A thread pool that grows to the number of functions running at once; idle threads wait for calls."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._threads = 0
        self._busy = 0

    async def call(self, definition: Definition, context: Context, arguments: dict[str, Any]) -> Any:
        """Run the function in a thread, in a copy of this task's context variables."""
        loop = asyncio.get_running_loop()
        variables = contextvars.copy_context()

        def function() -> Any:
            if definition.takes_context:
                return variables.run(definition.function, context, **arguments)
            return variables.run(definition.function, **arguments)

        call = _Call(function, loop, loop.create_future())
        self._busy += 1
        if self._busy > self._threads:
            self._threads += 1
            threading.Thread(target=self._work, name=f"callsheet-task-{self._threads}", daemon=True).start()
        self._calls.put(call)
        try:
            return await call.future
        finally:
            self._busy -= 1

    def close(self) -> None:
        """End idle threads at once, busy threads after their call."""
        for _ in range(self._threads):
            self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                value, error = call.function(), None
            except BaseException as raised:  # noqa: BLE001 - handed to the one who waits
                value, error = None, raised
            if not call.loop.is_closed():
                call.loop.call_soon_threadsafe(_resolve, call.future, value, error)


def _resolve(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    elif isinstance(error, StopIteration) or not isinstance(error, Exception):
        future.set_exception(RuntimeError(f"the task raised {error!r}"))
    else:
        future.set_exception(error)
