"""Claims whose answers a worker never heard: the store may have made them, and then their jobs run nowhere.

When a claim of a worker ends in an error, the worker writes down when it had asked, as soon as the store is there again
and before it claims anything else. A job of that worker whose lease runs out, and whose claim was made in such a time,
has not begun: its loss costs nothing. A worker's name need not be its own alone: another process of the same name may
have claimed and begun a job in that time. Then its loss is not counted once; the job bears a mark, and counts from then
on (`begun.needs_listing`).
"""

from __future__ import annotations

import json
import math
import time
from typing import TYPE_CHECKING, NamedTuple

from callsheet.kernel.errors import DocumentConflict
from callsheet.store.protocol import Document

if TYPE_CHECKING:
    from callsheet.kernel.job import Job
    from callsheet.store.protocol import Store

KIND = "unheard"
KEPT_MS = 86_400_000  # a lease that ran out is seen long before that
MOST = 100
RACES = 20


class Window(NamedTuple):
    """A time by the store's clock, in milliseconds, in which an unheard claim may have been made."""

    begin: int
    end: int


class UnheardClaims:
    """The unheard claims of one worker, by the local clock until they are written."""

    def __init__(self, store: Store, worker_id: str) -> None:
        self._store, self._worker_id = store, worker_id
        self._since = math.inf

    def add(self, asked_at: float) -> None:
        """Note that a claim, asked for at this moment of the monotonic clock, was not answered."""
        self._since = min(self._since, asked_at)

    async def write(self) -> None:
        """Write down what is noted, if anything; raises StoreError and keeps it noted."""
        if math.isinf(self._since):
            return
        now = await self._store.now()
        ago_ms = math.ceil((time.monotonic() - self._since) * 1000) + 1
        window = Window(now - ago_ms, now)
        for _ in range(RACES):  # another process of this name may write as well
            known = await self._store.documents(KIND, self._worker_id)
            windows = [window, *(each for document in known for each in _read(document) if each.end > now - KEPT_MS)]
            body = json.dumps(windows[:MOST])
            version = known[0].version if known else 0
            try:
                await self._store.put_document(Document(KIND, self._worker_id, body, version))
            except DocumentConflict:
                continue
            break
        self._since = math.inf


async def windows_of(store: Store, worker_id: str) -> list[Window]:
    """Return the times in which claims of a worker may have gone unheard."""
    return [window for document in await store.documents(KIND, worker_id) for window in _read(document)]


def is_within(job: Job, windows: list[Window]) -> bool:
    """Whether the claim of a running job was made in one of these times."""
    claimed_at = job.heartbeat_at if job.attempt_started_at is None else job.attempt_started_at
    return claimed_at is not None and any(window.begin <= claimed_at <= window.end for window in windows)


def _read(document: Document) -> list[Window]:
    return [Window(*window) for window in json.loads(document.body)]
