"""The numbers of one worker and of the queues it could serve, for whoever reads the metrics, from whatever thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from opentelemetry.metrics import Observation

from callsheet.engine import telemetry

if TYPE_CHECKING:
    from callsheet.store.protocol import Backlog

    from .runner import Worker

log = logging.getLogger("callsheet.worker")
SAMPLE_S = 5.0  # the store is asked for its backlog at most this often
PATIENCE_S = 2.0
EMPTY = (0, 0, 0, None)


class Gauges:
    """`async with Gauges(worker):` tells OpenTelemetry of the worker. The queues are looked at only when it asks."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._loop = asyncio.get_running_loop()
        self._asking = asyncio.Lock()
        self._asked_at = float("-inf")
        self._backlog: Mapping[str, Backlog] | None = None
        self._seen = set(worker.queues)
        self._soon: asyncio.Task[None] | None = None
        self._forget: Callable[[], None] | None = None

    async def __aenter__(self) -> Self:
        self._forget = telemetry.observe(
            {
                "callsheet.queue.depth": self._depth,
                "callsheet.queue.oldest.age": self._oldest,
                "callsheet.worker.slots": lambda: self._own(self._worker.options.concurrency),
                "callsheet.worker.slots.busy": lambda: self._own(self._worker.slots_busy),
                "callsheet.worker.prefetched": lambda: self._own(self._worker.prefetched),
                "callsheet.worker.unsettled": lambda: self._own(self._worker.unsettled),
                "callsheet.worker.ready": lambda: self._own(int(self._worker.ready)),
                "callsheet.worker.claim.age": lambda: self._own(claim_age_s(self._worker)),
            }
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._forget is not None:
            self._forget()
        if self._soon is not None:
            self._soon.cancel()

    async def sample(self) -> None:
        """Ask the store what waits, unless that was done of late. While it is away the queues have no numbers."""
        async with self._asking:
            engine = self._worker.engine
            if engine is None or self._fresh:
                return
            try:
                async with asyncio.timeout(PATIENCE_S):
                    self._backlog = await engine.backlog()
                self._seen |= self._backlog.keys()
            except Exception as error:  # noqa: BLE001 - the other metrics are wanted all the more
                self._backlog = None
                log.warning("the backlog cannot be read now: %s", str(error) or type(error).__name__)
            self._asked_at = time.monotonic()

    @property
    def _fresh(self) -> bool:
        return time.monotonic() - self._asked_at < SAMPLE_S

    def _latest(self) -> Mapping[str, Backlog] | None:
        """A sample that is not old. Another thread waits for it; on the event loop it comes too late for this time."""
        if not self._fresh and not self._loop.is_closed():
            if _running_loop() is self._loop:
                if self._soon is None or self._soon.done():
                    self._soon = self._loop.create_task(self.sample())
            else:
                asked = asyncio.run_coroutine_threadsafe(self.sample(), self._loop)
                with contextlib.suppress(concurrent.futures.TimeoutError, concurrent.futures.CancelledError):
                    asked.result(PATIENCE_S)
        return self._backlog

    def _depth(self) -> Iterable[Observation]:
        """A queue that was seen once is told of for ever: its 0 is what an alert waits for."""
        found = self._latest()
        if found is None:
            return
        for queue in sorted(self._seen):
            ready, held, running, _ = found.get(queue, EMPTY)
            for state, count in (("ready", ready), ("held", held), ("running", running)):
                yield Observation(count, {"queue": queue, "state": state})

    def _oldest(self) -> Iterable[Observation]:
        found = self._latest()
        if found is None:
            return
        for queue in sorted(self._seen):
            *_, oldest_ms = found.get(queue, EMPTY)
            yield Observation((oldest_ms or 0) / 1000, {"queue": queue})

    def _own(self, value: float | None) -> list[Observation]:
        return [] if value is None else [Observation(value, {"worker": self._worker.options.worker_id})]


def claim_age_s(worker: Worker) -> float | None:
    """How long ago the claim loop last had an answer, None before it began."""
    return None if worker.polled_at is None else time.monotonic() - worker.polled_at


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
