"""The bytes that are counted for each tenant: one document for each, by part, changed by its version.

What is promised to a file that begins (`RESERVED`) is in the same document as what is there. So one write decides
whether there is room, whichever server process or worker asks, on every store.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

from callsheet.kernel.errors import DocumentConflict, QuotaExceeded
from callsheet.store.protocol import Document

from .telemetry import quota_refused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from callsheet.store.protocol import Store

STORED, JOB_FILES = "stored_bytes", "job_files"
# The parts of what a tenant stores. Open uploads of its clients are in `uploads` and `videos` from their beginning.
UPLOADS, VIDEOS, ARTIFACTS, OUTPUTS, RESERVED = "uploads", "videos", "artifacts", "outputs", "reserved"
RACES = 100


class Stored(NamedTuple):
    """The bytes of a tenant's files by part, when it was last charged for one, and the version of this document.

    `removed` are the bytes that ever went, by part: who reads it twice knows what went in between. `open_uploads` is
    how many uploads of its clients have begun and are neither complete nor dropped.
    """

    parts: dict[str, int]
    charged_at: int = 0
    version: int = 0
    removed: dict[str, int] = {}  # noqa: RUF012 - never changed in place
    open_uploads: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.parts.values())

    def plus(self, changes: Mapping[str, int]) -> Stored:
        """The same with more bytes in some parts, or fewer; never below 0."""
        after = {part: max(0, self.parts.get(part, 0) + more) for part, more in changes.items()}
        gone = {part: self.removed.get(part, 0) - more for part, more in changes.items() if more < 0}
        return self._replace(parts={**self.parts, **after}, removed={**self.removed, **gone})


class StoredBytes:
    """The counts of a store's tenants. Writers of one process wait in line, so that only processes race."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lines: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def of(self, requester_id: str) -> Stored:
        """What is counted for a tenant."""
        for document in await self._store.documents(STORED, requester_id):
            return _read(document)
        return Stored({})

    async def of_all(self) -> dict[str, Stored]:
        """What is counted, by tenant."""
        return {document.id: _read(document) for document in await self._store.documents(STORED)}

    async def charge(
        self, requester_id: str, changes: Mapping[str, int], limit: int, *, most_open: int | None = None
    ) -> None:
        """Count bytes that a tenant is about to store; raises QuotaExceeded above `limit` and counts none. 0 is any.

        With `most_open` they are an upload's that begins, which is one of so many at most.
        """
        more, now = sum(changes.values()), await self._store.now()

        def counted(before: Stored) -> Stored:
            if limit and more > 0 and before.total + more > limit:
                raise refused("bytes", requester_id, limit=limit, used=before.total)
            if most_open and before.open_uploads >= most_open:
                raise refused("uploads", requester_id, limit=most_open, used=before.open_uploads)
            return before.plus(changes)._replace(
                charged_at=now, open_uploads=before.open_uploads + (most_open is not None)
            )

        await self._change(requester_id, counted)

    async def add(self, requester_id: str, changes: Mapping[str, int], *, closed: int = 0) -> None:
        """Count bytes that are there already, or that are gone (below 0), and uploads that are not open any more."""

        def counted(before: Stored) -> Stored:
            return before.plus(changes)._replace(open_uploads=max(0, before.open_uploads - closed))

        if closed or any(changes.values()):
            await self._change(requester_id, counted)

    async def _change(self, requester_id: str, change: Callable[[Stored], Stored]) -> None:
        line = self._lines.setdefault(requester_id, asyncio.Lock())
        async with line:
            for race in range(RACES):
                after = change(await self.of(requester_id))
                with contextlib.suppress(DocumentConflict):
                    return await self.keep(requester_id, after)
                await asyncio.sleep(random.uniform(0, 0.001 * race))  # noqa: S311 - so that writers do not march in step
        raise DocumentConflict("many files of this tenant begin at the same moment; try again")

    async def keep(self, requester_id: str, stored: Stored) -> None:
        """Write a count as it is; raises DocumentConflict when it changed since it was read."""
        body = {name: value for name, value in stored._asdict().items() if name != "version"}
        await self._store.put_document(Document(STORED, requester_id, json.dumps(body), stored.version))


async def mark_job(store: Store, job_id: str, requester_id: str) -> None:
    """Note that a job has files below its own folder; once is enough. They are removed when the job is forgotten."""
    with contextlib.suppress(DocumentConflict):
        await store.put_document(Document(JOB_FILES, job_id, json.dumps({"requester_id": requester_id}), 0))


def refused(quota: str, requester_id: str, *, limit: int, used: int) -> QuotaExceeded:
    """The error of a quota that is used up, counted for the operators; no tenant's name gets into a metric."""
    quota_refused(quota)
    return QuotaExceeded(quota, requester_id, limit=limit, used=used)


def _read(document: Document) -> Stored:
    body = json.loads(document.body)
    removed, open_uploads = body.get("removed", {}), body.get("open_uploads", 0)
    return Stored(body["parts"], body["charged_at"], document.version, removed, open_uploads)
