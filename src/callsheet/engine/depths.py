"""How full the queues are, for whoever reads the metrics, from whatever thread. The store is asked when they do.

The lanes of tenants are counted together: whoever may read metrics is not to learn who the others are.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from opentelemetry.metrics import Observation

from callsheet.kernel.lane import OF_TENANT

if TYPE_CHECKING:
    from callsheet.store.protocol import Backlog

    from .engine import Engine

log = logging.getLogger("callsheet.metrics")
SAMPLE_S = 5.0  # the store is asked for its backlog at most this often
PATIENCE_S = 2.0
EMPTY = (0, 0, 0, None)


class Depths:
    """The backlog as observations; `engine` answers None while there is none. On the event loop that makes it."""

    def __init__(self, engine: Callable[[], Engine | None], queues: Iterable[str] = ()) -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._asking = asyncio.Lock()
        self._asked_at = float("-inf")
        self._backlog: Mapping[str, Backlog] | None = None
        self._seen = set(queues)
        self._soon: asyncio.Task[None] | None = None

    @property
    def sources(self) -> dict[str, Callable[[], Iterable[Observation]]]:
        """For `telemetry.observe`."""
        return {"callsheet.queue.depth": self._depth, "callsheet.queue.oldest.age": self._oldest}

    def close(self) -> None:
        """Ask no more."""
        if self._soon is not None:
            self._soon.cancel()

    async def sample(self) -> None:
        """Ask the store what waits, unless that was done of late. While it is away the queues have no numbers."""
        async with self._asking:
            engine = self._engine()
            if engine is None or self._fresh:
                return
            try:
                async with asyncio.timeout(PATIENCE_S):
                    self._backlog = without_tenants(await engine.backlog())
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


def without_tenants(backlog: Mapping[str, Backlog]) -> dict[str, Backlog]:
    """The backlog by queue and by what its jobs need, whosever they are."""
    found: dict[str, Backlog] = {}
    for name, its_own in backlog.items():
        queue = name.partition(OF_TENANT)[0] or name
        known = found.get(queue)
        if known is None:
            found[queue] = its_own
            continue
        ages = [age for age in (known.oldest_ms, its_own.oldest_ms) if age is not None]
        counts = (known.ready + its_own.ready, known.held + its_own.held, known.running + its_own.running)
        found[queue] = known._replace(
            ready=counts[0], held=counts[1], running=counts[2], oldest_ms=max(ages, default=None)
        )
    return found


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
