"""A simulated process: its node, its claims, and its troubles."""

from __future__ import annotations

import asyncio
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

from callsheet.kernel.job import Claim, Job

from .loop import NODE, Node

if TYPE_CHECKING:
    from callsheet.store.hints import _Receiver

    from .loop import SimLoop

MOST_FLIGHTS = 2
PATIENCE = 5  # refusals in a row that a worker need not outlast


class Process(Node):
    """A worker, a deliverer, a housekeeper or a producer."""

    def __init__(self, name: str, loop: SimLoop) -> None:
        super().__init__(name)
        self.role = name.partition("-")[0]
        self.context: Context = copy_context()
        self.context.run(NODE.set, self)
        self.over = loop.create_future()
        self.died_at = float("inf")
        self.cut_until = 0.0
        self.is_silent = False  # while it is cut off, whether calls have no answer, else they are refused
        self.full_since: float | None = None
        self.receivers: list[_Receiver] = []
        self.heard: set[Claim] = set()
        self.troubles: list[tuple[float, float]] = []  # when it may have lost a lease through no fault of its own
        self.part: Any = None
        self.refusals = 0
        self.had_odd_errors = False  # then each settlement of a batch goes alone
        self.most_flights = 0  # batches of one flusher that were under way at once
        self._loop = loop
        self._flights = 0

    @property
    def is_cut(self) -> bool:
        """Return whether its connection to the store is cut."""
        return self._loop.time() < self.cut_until

    def start(self, main: Any) -> None:
        """Run its main coroutine until that ends, or until the process is killed."""
        self._loop.create_task(main, context=self.context).add_done_callback(self._ended)

    def kill(self) -> None:
        """Stop the process as `kill -9` would."""
        self.is_alive = False
        self._end()

    def asking(self, is_flight: bool) -> None:  # noqa: FBT001 - a fact about the call
        """Count a flusher's batches in flight."""
        self._flights += is_flight
        if self.role == "worker" and not self.had_odd_errors and not self.part.options.housekeeping:
            self.most_flights = max(self.most_flights, self._flights)

    def heard_back(self, is_flight: bool) -> None:  # noqa: FBT001 - a fact about the call
        """Record a batch's answer."""
        self._flights -= is_flight

    def hears(self, jobs: list[Job]) -> None:
        """Remember which claims it knows of."""
        self.heard |= {job.claim for job in jobs}

    def suffer(self, lasts_s: float) -> None:
        """Record a trouble of this length, starting now."""
        now = self._loop.time()
        self.troubles.append((now, now + lasts_s))

    def had_trouble(self, since: float, until: float) -> bool:
        """Return whether a trouble may explain a lease lost in this interval."""
        return any(begun <= until and trouble_end >= since for begun, trouble_end in self.troubles)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._loop.troubles.append(f"{self.name} broke: {error!r}")
        self.is_alive = False
        self._end()

    def _end(self) -> None:
        self.died_at = min(self.died_at, self._loop.time())
        if not self.over.done():
            self.over.set_result(None)
