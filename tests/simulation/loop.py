"""A seeded event loop: time is virtual, and the seed picks the next callback wherever asyncio leaves the order open.

A `Node` stands for a process. Between nodes any order may happen. Within a node the order is asyncio's own (first in,
first out), or, on request, a shuffled order of tasks: steps of different tasks come in any order, while those of one
task, and the plain callbacks of a node among one another, keep theirs. Store answers and timers come when their delays
say. Threads do not exist: executor calls run inline. A node that is dead is never run again, as after `kill -9`:
neither `finally` nor `except` blocks run. One that is frozen is run later.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import heapq
import itertools
import warnings
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")
STEP_S = 0.000_02  # what a callback takes
MOST_STEPS = 600_000
HORIZON_S = 20_000.0


class Node:
    """A simulated process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_alive = True
        self.frozen_until = 0.0
        self.parked: list[asyncio.Handle] = []
        self.thawed_at = 0.0


OUTSIDE = Node("outside")  # the store, the network, the receivers and whoever breaks things
NODE: ContextVar[Node] = ContextVar("node", default=OUTSIDE)


class Stuck(AssertionError):
    """The simulation has no next step, or never comes to its end."""


class SimTask(asyncio.Task[Any]):
    """A task with an address-independent set order."""

    def __init__(self, coro: Coroutine[Any, Any, Any], *, number: int, loop: SimLoop, **options: Any) -> None:
        self.number = number
        super().__init__(coro, loop=loop, **options)

    def __hash__(self) -> int:
        return self.number


class SimFuture(asyncio.Future[Any]):
    """A future with an address-independent set order."""

    def __init__(self, number: int, loop: SimLoop) -> None:
        self.number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.number


class SimLoop(asyncio.BaseEventLoop):
    """Runs until its main coroutine ends. `history` is a hash over every choice and every fact that was `noted`."""

    def __init__(self, seed: int, *, shuffles: bool, trace: Callable[[str], None] | None = None) -> None:
        super().__init__()
        self.now = 0.0
        self.steps = 0
        self.choices = 0  # steps before which more than one thing could have come next
        self.trace = trace
        self.troubles: list[str] = []
        self._choice = Random(f"schedule {seed}")
        self._shuffles = shuffles
        self._history = hashlib.blake2b(digest_size=16)
        self._lines: dict[object, deque[asyncio.Handle]] = {}
        self._timers: list[tuple[float, asyncio.TimerHandle]] = []  # a heap; the times make it quick to compare
        self._numbers = 0
        self._every_task: list[SimTask] = []  # so that none is collected, which would run its `finally`
        self._is_over = False
        self.set_debug(False)  # whatever the environment says: debugging makes a seed five times as dear
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._on_trouble)

    def time(self) -> float:
        """The virtual time, in seconds."""
        return self.now

    def note(self, fact: str) -> None:
        """Make a fact part of the history."""
        self._history.update(fact.encode())
        if self.trace is not None:
            self.trace(f"{self.now:11.5f} {fact}")

    def history(self) -> str:
        """Return the hash of all events so far."""
        return self._history.hexdigest()

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run to the end of `main` and drop whatever is left."""
        try:
            return self.run_until_complete(main)
        finally:
            self._is_over = True
            self._lines.clear()
            self._timers.clear()
            self._bury()
            self.close()

    def _bury(self) -> None:
        """Close the coroutines of a killed node, isolated from the rest."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of what a dead process would have awaited
            asyncio._set_running_loop(self)
            for task in self._every_task:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                if not task.done():
                    _close(task.get_coro())
            self._every_task.clear()
            asyncio._set_running_loop(None)

    def freeze(self, node: Node, until: float) -> None:
        """Suspend a node until a time; its clock continues, as under SIGSTOP."""
        node.frozen_until = max(node.frozen_until, until)
        self.call_at(node.frozen_until, self._thaw, node, context=Context())

    def _thaw(self, node: Node) -> None:
        if self.now >= node.frozen_until:
            node.thawed_at = self.now
            parked, node.parked = node.parked, []
            for handle in parked:
                self._line_up(handle)

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """As asyncio's; the seed may let another task's step come first."""
        handle = asyncio.Handle(callback, args, self, context)
        self._line_up(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Schedule a callback, as asyncio does."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, timer))
        return timer

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, function: Any, *args: Any
    ) -> Any:
        """Call the function inline: threads do not exist."""
        future = self.create_future()
        try:
            self.call_soon(future.set_result, function(*args))
        except Exception as error:  # noqa: BLE001 - handed to the caller
            self.call_soon(future.set_exception, error)
        return future

    def create_future(self) -> SimFuture:
        """Return a future with a serial number."""
        self._numbers += 1
        return SimFuture(self._numbers, self)

    def _make_task(self, loop: Any, coro: Any, **options: Any) -> SimTask:
        self._numbers += 1
        task = SimTask(coro, number=self._numbers, loop=self, **options)
        self._every_task.append(task)
        return task

    def _line_up(self, handle: asyncio.Handle) -> None:
        if self._is_over:
            return
        node = _node_of(handle)
        if not node.is_alive:
            return
        if self.now < node.frozen_until:
            node.parked.append(handle)
            return
        task = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]
        source = task if self._shuffles and isinstance(task, SimTask) else node
        self._lines.setdefault(source, deque()).append(handle)

    def _run_once(self) -> None:
        self.now += STEP_S
        self.steps += 1
        if self.steps > MOST_STEPS or self.now > HORIZON_S:
            raise Stuck(f"no end after {self.steps} steps and {self.now:.0f} s")
        timers = self._timers
        if not self._lines and timers:
            self.now = max(self.now, timers[0][0])
        while timers and timers[0][0] <= self.now:
            _, timer = heapq.heappop(timers)
            if not timer.cancelled():
                self._line_up(timer)
        if self._lines:
            self._run_one()
        elif not timers:
            raise Stuck("nothing can happen any more")

    def _run_one(self) -> None:
        place, count = 0, len(self._lines)
        if count > 1:
            place = self._choice.randrange(count)
            self.choices += 1
        source = next(itertools.islice(self._lines, place, None))
        line = self._lines[source]
        handle = line.popleft()
        if not line:
            del self._lines[source]
        node = _node_of(handle)
        if handle.cancelled() or not node.is_alive:
            return
        if self.now < node.frozen_until:
            node.parked.append(handle)
            return
        self._history.update(f"{place}/{count} {node.name} {self.now:.6f};".encode())
        handle._run()

    def _on_trouble(self, loop: Any, context: dict[str, Any]) -> None:
        if not self._is_over:
            self.troubles.append(f"{context.get('message')}: {context.get('exception')!r}")

    def _write_to_self(self) -> None:
        """Ignore the wake-up, because the loop never sleeps."""

    def _process_events(self, events: Any) -> None:
        """Ignore sockets, because none exist."""


def _node_of(handle: asyncio.Handle) -> Node:
    return handle._context.get(NODE, OUTSIDE)  # type: ignore[attr-defined,no-any-return]


def _close(coro: Any) -> None:
    """End a coroutine: every await is cancelled, those in its cleanup too."""
    with contextlib.suppress(BaseException):
        for _ in range(1_000):
            coro.throw(asyncio.CancelledError)
