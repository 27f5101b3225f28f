"""The bytes counted for each tenant: one document per tenant, by part, guarded by its version.

Bytes promised to a file in progress (`RESERVED`) are in the same document as stored bytes. So one write decides whether
there is room, for every server process and worker, on every store.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import Callable, Mapping
from typing import NamedTuple
from weakref import WeakValueDictionary

from callsheet.kernel.errors import DocumentConflict, QuotaExceeded
from callsheet.store.protocol import Document, Store

from .telemetry import quota_refused

STORED_BYTES, JOB_FILES = "stored_bytes", "job_files"
# The parts of a tenant's stored bytes. Open uploads of its clients count in `uploads` and `videos` from their start.
UPLOADS, VIDEOS, ARTIFACTS, OUTPUTS, RESERVATIONS = "uploads", "videos", "artifacts", "outputs", "reserved"
RACES = 100


class Stored(NamedTuple):
    """A tenant's bytes by part, the time of the last charge, and the version of this document.

    `removed` sums all bytes ever deleted, by part: two reads give the bytes deleted in between. `open_uploads` is the
    number of client uploads that are neither complete nor dropped.
    """

    parts: dict[str, int]
    charged_at: int = 0
    version: int = 0
    removed: dict[str, int] = {}  # noqa: RUF012 - never changed in place
    open_uploads: int = 0

    @property
    def total(self) -> int:
        """The total bytes of all parts."""
        return sum(self.parts.values())

    def plus(self, changes: Mapping[str, int]) -> Stored:
        """Return these counts with bytes added to some parts, or subtracted; never below 0."""
        after = {part: max(0, self.parts.get(part, 0) + more) for part, more in changes.items()}
        deletions = {part: self.removed.get(part, 0) - more for part, more in changes.items() if more < 0}
        return self._replace(parts={**self.parts, **after}, removed={**self.removed, **deletions})


class StoredBytes:
    """The byte counts of a store's tenants. Writers of one process take turns, so that only processes race."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lines: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def of(self, requester_id: str) -> Stored:
        """Return the counts of a tenant."""
        for document in await self._store.documents(STORED_BYTES, requester_id):
            return _read(document)
        return Stored({})

    async def of_all(self) -> dict[str, Stored]:
        """Return all counts, by tenant."""
        return {document.id: _read(document) for document in await self._store.documents(STORED_BYTES)}

    async def charge(
        self, requester_id: str, changes: Mapping[str, int], limit: int, *, most_open: int | None = None
    ) -> None:
        """Count bytes that a tenant is about to store; raises QuotaExceeded above `limit`, then counting none.

        A `limit` of 0 is unlimited. With `most_open` the bytes begin an upload; the tenant may have at most `most_open`
        open uploads.
        """
        more, now = sum(changes.values()), await self._store.now()

        def add_charge(before: Stored) -> Stored:
            if limit and more > 0 and before.total + more > limit:
                raise quota_exceeded("bytes", requester_id, limit=limit, used=before.total)
            if most_open and before.open_uploads >= most_open:
                raise quota_exceeded("uploads", requester_id, limit=most_open, used=before.open_uploads)
            return before.plus(changes)._replace(
                charged_at=now, open_uploads=before.open_uploads + (most_open is not None)
            )

        await self._change(requester_id, add_charge)

    async def add(self, requester_id: str, changes: Mapping[str, int], *, closed: int = 0) -> None:
        """Count bytes already stored, or deleted (below 0), and subtract closed uploads."""

        def add_changes(before: Stored) -> Stored:
            return before.plus(changes)._replace(open_uploads=max(0, before.open_uploads - closed))

        if closed or any(changes.values()):
            await self._change(requester_id, add_changes)

    async def _change(self, requester_id: str, change: Callable[[Stored], Stored]) -> None:
        line = self._lines.setdefault(requester_id, asyncio.Lock())
        async with line:
            for race in range(RACES):
                after = change(await self.of(requester_id))
                with contextlib.suppress(DocumentConflict):
                    return await self.keep(requester_id, after)
                await asyncio.sleep(random.uniform(0, 0.001 * race))  # noqa: S311 - so that writers do not march in step
        raise DocumentConflict("many files of this tenant begin at the same moment; try again")

    async def keep(self, requester_id: str, state: Stored) -> None:
        """Write a count as given; raises DocumentConflict if the stored count changed since the read."""
        body = {name: value for name, value in state._asdict().items() if name != "version"}
        await self._store.put_document(Document(STORED_BYTES, requester_id, json.dumps(body), state.version))


async def mark_job(store: Store, job_id: str, requester_id: str) -> None:
    """Record that a job has files in its own folder; repeating is harmless. Pruning the job removes the files."""
    with contextlib.suppress(DocumentConflict):
        await store.put_document(Document(JOB_FILES, job_id, json.dumps({"requester_id": requester_id}), 0))


def quota_exceeded(quota: str, requester_id: str, *, limit: int, used: int) -> QuotaExceeded:
    """Return the error of a full quota and count the refusal in metrics, without the tenant's name."""
    quota_refused(quota)
    return QuotaExceeded(quota, requester_id, limit=limit, used=used)


def _read(document: Document) -> Stored:
    body = json.loads(document.body)
    removals, open_uploads = body.get("removed", {}), body.get("open_uploads", 0)
    return Stored(body["parts"], body["charged_at"], document.version, removals, open_uploads)
