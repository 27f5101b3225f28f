"""Limits per tenant: defaults for all, documents for tenants with other limits, and counts of stored bytes.

Jobs without a requester (requester "") are the operators' own and have no quota unless an operator sets one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from callsheet.kernel.errors import DocumentConflict, InvalidInput, StoreError
from callsheet.store.protocol import Document, Store

from .stored import RACES, UPLOADS, StoredBytes, quota_exceeded

KIND, PUBLISHED = "quota", "quota_defaults"
SERVER = "server"
KEPT_S = 5.0  # how long a read stays valid: a change by another process takes effect after this
BEGINNING_MS = 60_000  # a charged file is visible in the store within this time
MOST_COUNTED = 100_000
MOST = 2**53 - 1  # the largest integer that JSON carries exactly


class Quota(NamedTuple):
    """Limits of one tenant; 0 is unlimited. In a tenant's document, None stands for the server's default.

    `bytes` counts stored files; `rate` is requests per second; `streams` and `rate` apply to each server process.
    `uploads` counts open uploads, neither complete nor dropped.
    """

    queued: int | None = None
    running: int | None = None
    bytes: int | None = None
    streams: int | None = None
    rate: int | None = None
    uploads: int | None = None

    def over(self, defaults: Quota) -> Quota:
        """Return these limits, with the defaults for each unset limit."""
        return Quota(*(own if own is not None else other for own, other in zip(self, defaults, strict=True)))


NO_LIMITS = Quota(0, 0, 0, 0, 0, 0)
# One tenant can take a fifth of a queue's depth of 100,000, and two keys' worth of requests and streams.
DEFAULTS = Quota(queued=20_000, running=0, bytes=100 * 10**9, streams=400, rate=2_000, uploads=1_000)


def check_quota(quota: Quota) -> Quota:
    """Return the quota unchanged; raises InvalidInput for a number out of range."""
    for name, value in quota._asdict().items():
        if value is not None and not 0 <= value <= MOST:
            raise InvalidInput(f"{name}: a quota is a whole number from 0 (any number) to {MOST}")
    return quota


class Quotas:
    """The quotas of a store's tenants, as one process knows them.

    Without `defaults`, the defaults published by a server apply; until a server publishes defaults, tenants are
    unlimited.
    """

    def __init__(self, store: Store, defaults: Quota | None = DEFAULTS) -> None:
        self._store = store
        self.bytes = StoredBytes(store)
        self._follows, self.are_known = defaults is None, defaults is not None
        self.defaults = (defaults or NO_LIMITS).over(NO_LIMITS)
        self._own: dict[str, Quota] = {}
        self._read_at, self._was_read = float("-inf"), False
        self._reading = asyncio.Lock()

    def limits_of(self, requester_id: str) -> Quota:
        """Return a tenant's effective quota, as of the last `refresh`; every field is a number."""
        defaults = self.defaults if requester_id else NO_LIMITS
        own = self._own.get(requester_id)
        return defaults if own is None else own.over(defaults)

    @property
    def are_old(self) -> bool:
        """Whether the last read has expired, so that `refresh` reads again."""
        return time.monotonic() - self._read_at >= KEPT_S

    async def refresh(self, *, now: bool = False) -> None:
        """Read the quotas set by operators, at most every 5 s unless `now`; if the store is down the old quotas apply.

        During a read other callers continue with the old numbers; before the first read they wait.
        """
        if not now and not self.are_old:
            return
        async with self._reading:
            if now or self.are_old:
                if self._was_read:
                    self._read_at = time.monotonic()
                with contextlib.suppress(StoreError):
                    await self._read_all()

    async def _read_all(self) -> None:
        self._own = {document.id: _read(document) for document in await self._store.documents(KIND)}
        for document in await self._store.documents(PUBLISHED) if self._follows else ():
            self.defaults, self.are_known = _read(document).over(NO_LIMITS), True
        self._was_read, self._read_at = True, time.monotonic()

    async def publish(self) -> None:
        """Publish this server's defaults to workers and commands; of several servers the last one to start wins."""
        body = json.dumps(self.defaults._asdict())
        with contextlib.suppress(DocumentConflict):
            before = await self._store.documents(PUBLISHED, SERVER)
            if not before or before[0].body != body:
                await self._store.put_document(Document(PUBLISHED, SERVER, body, before[0].version if before else 0))

    async def own(self) -> dict[str, Quota]:
        """Return the quotas set by operators, by tenant."""
        await self.refresh(now=True)
        return dict(self._own)

    async def set(self, requester_id: str, changes: Mapping[str, int | None]) -> Quota:
        """Change a tenant's own limits; None restores a default. Raises InvalidInput."""
        for _ in range(RACES):
            documents = await self._store.documents(KIND, requester_id)
            quota = check_quota((_read(documents[0]) if documents else Quota())._replace(**changes))
            body = json.dumps({name: value for name, value in quota._asdict().items() if value is not None})
            with contextlib.suppress(DocumentConflict):
                await self._store.put_document(
                    Document(KIND, requester_id, body, documents[0].version if documents else 0)
                )
                await self.refresh(now=True)
                return quota
        raise DocumentConflict(f"the quotas of {requester_id!r} changed {RACES} times meanwhile; try again")

    async def remove(self, requester_id: str) -> bool:
        """Restore a tenant's default limits; return False if the tenant had the defaults already."""
        is_deleted = await self._store.delete_document(KIND, requester_id)
        await self.refresh(now=True)
        return is_deleted

    async def room(self, requester_id: str) -> int | None:
        """Return how many more jobs a tenant may queue; None is unlimited."""
        limit = self.limits_of(requester_id).queued
        if not limit:
            return None
        (count,) = await self._store.queued_of([requester_id], most=limit)
        return limit - count

    async def check_queued(self, requester_id: str) -> None:
        """Raise QuotaExceeded if a tenant's queue is full, before a job returns to the queue."""
        if await self.room(requester_id) == 0:
            limit = self.limits_of(requester_id).queued or 0
            raise quota_exceeded("queued", requester_id, limit=limit, used=limit)

    async def used(self, requester_id: str) -> dict[str, int]:
        """Return a tenant's use of the quotas that the store counts.

        The count of queued jobs stops at MOST_COUNTED, or at the tenant's quota if that is higher.
        """
        most = max(self.limits_of(requester_id).queued or 0, MOST_COUNTED)
        (count,) = await self._store.queued_of([requester_id], most=most)
        running = sum(load.running for load in await self._store.worker_loads(requester_id))
        stored_bytes = await self.bytes.of(requester_id)
        return {"queued": count, "running": running, "bytes": stored_bytes.total, "uploads": stored_bytes.open_uploads}

    async def stored_bytes(self, requester_id: str) -> int:
        """Return the bytes counted for a tenant: stored files, and bytes reserved for files in progress."""
        return (await self.bytes.of(requester_id)).total

    async def charge(self, requester_id: str, more: int, part: str = UPLOADS, *, opens: bool = False) -> None:
        """Count bytes that a tenant is about to store; raises QuotaExceeded and then counts nothing.

        `opens`: the bytes begin a new upload.
        """
        quota = self.limits_of(requester_id)
        most_open = quota.uploads or 0 if opens else None
        await self.bytes.charge(requester_id, {part: more}, quota.bytes or 0, most_open=most_open)

    async def add(self, requester_id: str, more: int, part: str = UPLOADS, *, closed: int = 0) -> None:
        """Count bytes already stored, or deleted (below 0), and subtract closed uploads."""
        await self.bytes.add(requester_id, {part: more}, closed=closed)

    async def recount(
        self, requester_id: str, count: Callable[[], Awaitable[tuple[int, int]]], part: str = UPLOADS
    ) -> None:
        """Replace the summed counts by an actual count: the bytes of a part, and the open uploads.

        Skipped while files begin: a file charged a moment ago may not be visible yet.
        """
        before = await self.bytes.of(requester_id)
        if before.charged_at + BEGINNING_MS > await self._store.now():
            return
        part_bytes, open_uploads = await count()
        after = before._replace(parts={**before.parts, part: part_bytes}, open_uploads=open_uploads)
        with contextlib.suppress(DocumentConflict):  # a file began in the meantime
            await self.bytes.keep(requester_id, after)


def slot_of(requester_id: str) -> str:
    """Return the concurrency key of a tenant with a quota of running jobs."""
    return f"callsheet.tenant:{requester_id}"


def _read(document: Document) -> Quota:
    body = json.loads(document.body)
    return Quota(**{name: value for name, value in body.items() if name in Quota._fields})
