"""Queue depths as metrics, readable from any thread; a reading queries the store.

The lanes of tenants are counted together: readers of metrics must not learn the names of tenants. Tenants can name any
queue, so only this process's queues and the biggest other queues have a label each; the rest is summed as `other`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from opentelemetry.metrics import Observation

from callsheet.kernel.lane import OF_TENANT
from callsheet.store.protocol import Backlog

if TYPE_CHECKING:
    from .engine import Engine

log = logging.getLogger("callsheet.metrics")
SAMPLE_S = 5.0  # the backlog is read at most this often
PATIENCE_S = 2.0
OTHER = "other"
MOST_SHOWN = 100  # queues with a label at one time, next to those of this process
MOST_EVER = 500  # in the life of a process, each with three states: OpenTelemetry's SDK drops labels beyond 2,000


class Depths:
    """The backlog as observations; `engine` returns None while there is no engine. Create it on the event loop."""

    def __init__(self, engine: Callable[[], Engine | None], queues: Iterable[str] = ()) -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._asking = asyncio.Lock()
        self._asked_at = float("-inf")
        self._backlog: Mapping[str, Backlog] | None = None
        self._own = frozenset(queues)
        self._labels: frozenset[str] = self._own
        self._ever: set[str] = set()
        self._soon: asyncio.Task[None] | None = None

    @property
    def sources(self) -> dict[str, Callable[[], Iterable[Observation]]]:
        """The gauge sources for `telemetry.observe`."""
        return {"callsheet.queue.depth": self._depth, "callsheet.queue.oldest.age": self._oldest}

    def close(self) -> None:
        """Stop sampling the backlog."""
        if self._soon is not None:
            self._soon.cancel()

    async def sample(self) -> None:
        """Read the store's backlog unless a recent sample exists. Without the store, no depths are reported."""
        async with self._asking:
            engine = self._engine()
            if engine is None or self._fresh:
                return
            try:
                async with asyncio.timeout(PATIENCE_S):
                    backlog = without_tenants(await engine.backlog())
                self._show(backlog, self._own | engine.fair_queues)
                self._backlog = with_others(backlog, self._labels)
            except Exception as error:  # noqa: BLE001 - the other metrics are wanted all the more
                self._backlog = None
                log.warning("the backlog cannot be read now: %s", str(error) or type(error).__name__)
            self._asked_at = time.monotonic()

    def _show(self, backlog: Mapping[str, Backlog], own: frozenset[str]) -> None:
        """Choose the queues with a label. An empty queue keeps its label while there is room: alerts wait for its 0."""
        before = self._labels
        candidates = sorted(
            (backlog.keys() | before) - own - {OTHER},
            key=lambda name: (-_size(backlog.get(name)), name not in before, name),
        )
        names: list[str] = []
        for name in candidates:
            if len(names) < MOST_SHOWN and (name in self._ever or len(self._ever) < MOST_EVER):
                names.append(name)
                self._ever.add(name)
        has_others = OTHER in before or not backlog.keys() <= {*own, *names}
        self._labels = own.union(names, [OTHER] if has_others else [])

    @property
    def _fresh(self) -> bool:
        return time.monotonic() - self._asked_at < SAMPLE_S

    def _latest(self) -> Mapping[str, Backlog] | None:
        """Return a recent sample. Other threads wait for a new sample; on the event loop it serves the next reading."""
        if not self._fresh and not self._loop.is_closed():
            if _running_loop() is self._loop:
                if self._soon is None or self._soon.done():
                    self._soon = self._loop.create_task(self.sample())
            else:
                sampling = asyncio.run_coroutine_threadsafe(self.sample(), self._loop)
                with contextlib.suppress(concurrent.futures.TimeoutError, concurrent.futures.CancelledError):
                    sampling.result(PATIENCE_S)
        return self._backlog

    def _depth(self) -> Iterable[Observation]:
        backlog = self._latest()
        if backlog is None:
            return
        for queue, (ready, held, running, _) in sorted(backlog.items()):
            for state, count in (("ready", ready), ("held", held), ("running", running)):
                yield Observation(count, {"queue": queue, "state": state})

    def _oldest(self) -> Iterable[Observation]:
        backlog = self._latest()
        if backlog is None:
            return
        for queue, its_own in sorted(backlog.items()):
            yield Observation((its_own.oldest_ms or 0) / 1000, {"queue": queue})


def without_tenants(backlog: Mapping[str, Backlog]) -> dict[str, Backlog]:
    """Return the backlog by queue and required labels, with all tenants summed."""
    return _sum((name.partition(OF_TENANT)[0] or name, its_own) for name, its_own in backlog.items())


def with_others(backlog: Mapping[str, Backlog], labels: Collection[str]) -> dict[str, Backlog]:
    """Return the backlog of the labelled queues, 0 for empty queues; all other queues are summed as `other`."""
    empty = dict.fromkeys(labels, Backlog())
    return empty | _sum((name if name in labels else OTHER, its_own) for name, its_own in backlog.items())


def _sum(parts: Iterable[tuple[str, Backlog]]) -> dict[str, Backlog]:
    sums: dict[str, Backlog] = {}
    for name, part in parts:
        before = sums.get(name, Backlog())
        ages = [age for age in (before.oldest_ms, part.oldest_ms) if age is not None]
        counts = (before.ready + part.ready, before.held + part.held, before.running + part.running)
        sums[name] = Backlog(*counts, max(ages, default=None))
    return sums


def _size(backlog: Backlog | None) -> int:
    return 0 if backlog is None else backlog.ready + backlog.held + backlog.running


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
