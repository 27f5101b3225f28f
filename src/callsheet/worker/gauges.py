"""Gauges of one worker and of its queues, readable from any thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from opentelemetry.metrics import Observation

from callsheet.engine import telemetry
from callsheet.engine.depths import Depths

if TYPE_CHECKING:
    from .runner import Worker


class Gauges:
    """`async with Gauges(worker):` registers the worker's gauges with OpenTelemetry; `sample` reads queue depths."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._depths = Depths(lambda: worker.engine, worker.queues)
        self._forget: Callable[[], None] | None = None

    async def __aenter__(self) -> Self:
        self._forget = telemetry.observe(
            {
                **self._depths.sources,
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
        self._depths.close()

    async def sample(self) -> None:
        """Read the queue depths from the store, unless a recent reading exists."""
        await self._depths.sample()

    def _own(self, value: float | None) -> list[Observation]:
        return [] if value is None else [Observation(value, {"worker": self._worker.options.worker_id})]


def claim_age_s(worker: Worker) -> float | None:
    """Return the seconds since the claim loop's last round without an error; None before its start."""
    return None if worker.polled_at is None else time.monotonic() - worker.polled_at
