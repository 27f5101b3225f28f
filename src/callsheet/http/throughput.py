"""Counts jobs that ended in the last 15 minutes, by time span, from the store and therefore across all processes.

Each process caches the counts. Spans that ended more than LATE_MS ago are not read again, so that a refresh costs only
the jobs that ended since the last one.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from callsheet.kernel.job import Status

if TYPE_CHECKING:
    from callsheet.store.protocol import Store

SPAN_MS = 10_000
SPANS = 90
LATE_MS = 5_000  # the end of a job may be written this late, so its span is read again until then
FRESH_S = 1.0  # cached counts are reused for this long
MOST_WINDOWS = 200

Counts = dict[tuple[str, Status], int]


class Window(NamedTuple):
    """Counts of ended jobs by time span, oldest span first. The last span is still running."""

    at: int
    spans: list[tuple[int, Counts]]

    @property
    def kinds(self) -> dict[str, dict[Status, int]]:
        """Counts of ended jobs in the whole window, by kind and status."""
        found: dict[str, dict[Status, int]] = {}
        for _, counts in self.spans:
            for (kind, status), jobs in counts.items():
                of_kind = found.setdefault(kind, {})
                of_kind[status] = of_kind.get(status, 0) + jobs
        return found


class Throughput:
    """Caches the windows of requesters, and the window of all requesters (None)."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._windows: OrderedDict[str | None, _Kept] = OrderedDict()

    async def window(self, requester_id: str | None) -> Window:
        """Return the last 15 minutes of a requester's jobs; None means all requesters."""
        kept = self._windows.setdefault(requester_id, _Kept())
        self._windows.move_to_end(requester_id)
        while len(self._windows) > MOST_WINDOWS:
            self._windows.popitem(last=False)
        async with kept.asking:
            if time.monotonic() - kept.read_at > FRESH_S:
                await self._read(kept, requester_id)
        first = kept.now - kept.now % SPAN_MS - (SPANS - 1) * SPAN_MS
        return Window(kept.now, [(at, kept.spans.get(at, {})) for at in range(first, kept.now + 1, SPAN_MS)])

    async def _read(self, kept: _Kept, requester_id: str | None) -> None:
        now = await self._store.now()
        first = now - now % SPAN_MS - (SPANS - 1) * SPAN_MS
        since = max(first, kept.settled)
        found: dict[int, Counts] = {}
        for end in await self._store.endings(since=since, span_ms=SPAN_MS, requester_id=requester_id):
            found.setdefault(end.since, {})[end.kind, end.status] = end.jobs
        before = {at: counts for at, counts in kept.spans.items() if first <= at < since}
        kept.spans = {**before, **found}
        kept.now, kept.read_at = now, time.monotonic()
        kept.settled = (now - LATE_MS) - (now - LATE_MS) % SPAN_MS


class _Kept:
    """The cached counts of one window. Spans before `settled` are not read again."""

    def __init__(self) -> None:
        self.asking = asyncio.Lock()
        self.spans: dict[int, Counts] = {}
        self.settled = 0
        self.now = 0
        self.read_at = float("-inf")
