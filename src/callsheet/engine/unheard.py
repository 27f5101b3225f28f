"""Unheard claims: the store may have made a claim whose answer a worker never received, so that its jobs run nowhere.

If a worker's claim ends in an error, the worker records the time of the request, as soon as the store is back and
before its next claim. If a lease of that worker expires and the claim falls in a recorded window, the job has not
begun: its loss counts no attempt. Another process of the same worker name may have claimed and begun a job in that
window. In that case one loss stays uncounted; the job is marked, and later losses count (`begun.needs_listing`).
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
KEPT_MS = 86_400_000  # housekeeping notices an expired lease long before that
MOST = 100
RACES = 20


class Window(NamedTuple):
    """The time window of an unheard claim, in milliseconds by the store's clock."""

    begin: int
    end: int


class UnheardClaims:
    """The unheard claims of one worker, by the local clock until they are written."""

    def __init__(self, store: Store, worker_id: str) -> None:
        self._store, self._worker_id = store, worker_id
        self._since = math.inf

    def add(self, asked_at: float) -> None:
        """Record that a claim requested at this moment of the monotonic clock got no answer."""
        self._since = min(self._since, asked_at)

    async def write(self) -> None:
        """Store the recorded window, if any; raises StoreError and keeps the record."""
        if math.isinf(self._since):
            return
        now = await self._store.now()
        ago_ms = math.ceil((time.monotonic() - self._since) * 1000) + 1
        window = Window(now - ago_ms, now)
        for _ in range(RACES):  # another process of this worker name may write as well
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
    """Return the time windows of a worker's unheard claims."""
    return [window for document in await store.documents(KIND, worker_id) for window in _read(document)]


def is_within(job: Job, windows: list[Window]) -> bool:
    """Return whether the claim of a running job falls in a time window."""
    claimed_at = job.heartbeat_at if job.attempt_started_at is None else job.attempt_started_at
    return claimed_at is not None and any(window.begin <= claimed_at <= window.end for window in windows)


def _read(document: Document) -> list[Window]:
    return [Window(*window) for window in json.loads(document.body)]
