"""What each tenant may have: defaults for all, a document for whom an operator sets others, and the bytes it stores.

Jobs of nobody in particular (requester "") are the operators' own: they have no quota unless one is set for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from typing import TYPE_CHECKING, NamedTuple

from callsheet.kernel.errors import DocumentConflict, InvalidInput, QuotaExceeded, StoreError
from callsheet.store.protocol import Document

from .telemetry import quota_refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from callsheet.store.protocol import Store

KIND = "quota"
STORED = "stored_bytes"
UPLOADS, VIDEOS, ARTIFACTS = "uploads", "videos", "artifacts"  # the parts of what a tenant stores
KEPT_S = 5.0  # how long what was read is believed: a change made through another process is seen after this
RACES = 100
BEGINNING_MS = 60_000  # within this a file that was charged for is known to the store
MOST = 2**53 - 1  # what JSON carries exactly


class Quota(NamedTuple):
    """Limits of one tenant; 0 is any number. In a document of a tenant, None is the server's default.

    `bytes` are those of its stored files; `rate` is requests in a second; `streams` and `rate` hold for each server.
    """

    queued: int | None = None
    running: int | None = None
    bytes: int | None = None
    streams: int | None = None
    rate: int | None = None

    def over(self, defaults: Quota) -> Quota:
        """These limits where they are set, the defaults elsewhere."""
        return Quota(*(own if own is not None else other for own, other in zip(self, defaults, strict=True)))


UNLIMITED = Quota(0, 0, 0, 0, 0)
# One tenant can take a fifth of a queue's depth of 100,000, and two keys' worth of requests and streams.
DEFAULTS = Quota(queued=20_000, running=0, bytes=100 * 10**9, streams=400, rate=2_000)


def checked(quota: Quota) -> Quota:
    """The same; raises InvalidInput for a number that is none."""
    for name, value in quota._asdict().items():
        if value is not None and not 0 <= value <= MOST:
            raise InvalidInput(f"{name}: a quota is a whole number from 0 (any number) to {MOST}")
    return quota


class Quotas:
    """The quotas of a store's tenants, as one process knows them."""

    def __init__(self, store: Store, defaults: Quota = DEFAULTS) -> None:
        self._store = store
        self.defaults = defaults.over(UNLIMITED)
        self._own: dict[str, Quota] = {}
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()

    def known(self, requester_id: str) -> Quota:
        """What holds for a tenant, as of the last `refresh`; every field is a number."""
        defaults = self.defaults if requester_id else UNLIMITED
        own = self._own.get(requester_id)
        return defaults if own is None else own.over(defaults)

    @property
    def are_old(self) -> bool:
        """Whether it is time to `refresh`."""
        return time.monotonic() - self._read_at >= KEPT_S

    async def refresh(self, *, now: bool = False) -> None:
        """Read what operators have set, unless that was done a moment ago. Without the store the old numbers hold."""
        if not now and not self.are_old:
            return
        async with self._reading:
            if now or self.are_old:
                self._read_at = time.monotonic()
                with contextlib.suppress(StoreError):
                    self._own = {doc.id: _read(doc) for doc in await self._store.documents(KIND)}

    async def own(self) -> dict[str, Quota]:
        """What operators have set, by tenant."""
        await self.refresh(now=True)
        return dict(self._own)

    async def set(self, requester_id: str, changes: Mapping[str, int | None]) -> Quota:
        """Change a tenant's own limits; None gives one back to the default. Raises InvalidInput."""
        for _ in range(RACES):
            found = await self._store.documents(KIND, requester_id)
            quota = checked((_read(found[0]) if found else Quota())._replace(**changes))
            body = json.dumps({name: value for name, value in quota._asdict().items() if value is not None})
            with contextlib.suppress(DocumentConflict):
                await self._store.put_document(Document(KIND, requester_id, body, found[0].version if found else 0))
                await self.refresh(now=True)
                return quota
        raise DocumentConflict(f"the quotas of {requester_id!r} changed {RACES} times meanwhile; try again")

    async def remove(self, requester_id: str) -> bool:
        """Give a tenant the defaults again; False when it had no others."""
        gone = await self._store.delete_document(KIND, requester_id)
        await self.refresh(now=True)
        return gone

    async def room(self, requester_id: str) -> int | None:
        """How many more jobs a tenant may have in line; None is any number."""
        limit = self.known(requester_id).queued
        if not limit:
            return None
        (queued,) = await self._store.queued_of([requester_id], most=limit)
        return limit - queued

    async def check_queued(self, requester_id: str) -> None:
        """Raise QuotaExceeded where a tenant may have no more jobs in line: for one that is brought back."""
        if await self.room(requester_id) == 0:
            limit = self.known(requester_id).queued or 0
            raise refused("queued", requester_id, limit=limit, used=limit)

    async def stored(self, requester_id: str) -> int:
        """The bytes of files that are counted for a tenant."""
        return (await self._counted(requester_id)).total

    async def check_bytes(self, requester_id: str, more: int) -> None:
        """Raise QuotaExceeded where a tenant has no room for so many bytes; nothing is counted."""
        limit = self.known(requester_id).bytes
        if limit and (used := await self.stored(requester_id)) + more > limit:
            raise refused("bytes", requester_id, limit=limit, used=used)

    async def charge(self, requester_id: str, more: int, part: str = UPLOADS) -> None:
        """Count bytes that a tenant is about to store; raises QuotaExceeded, and then none is counted."""
        limit, now = self.known(requester_id).bytes or 0, await self._store.now()

        def count(before: Stored) -> Stored:
            if limit and before.total + more > limit:
                raise refused("bytes", requester_id, limit=limit, used=before.total)
            return before.plus(part, more)._replace(charged_at=now)

        await self._change(requester_id, count)

    async def add(self, requester_id: str, more: int, part: str = UPLOADS) -> None:
        """Count bytes that are there already, or that are gone (below 0); it is never refused."""
        await self._change(requester_id, lambda before: before.plus(part, more))

    async def recount(self, requester_id: str, count: Callable[[], Awaitable[int]], part: str = UPLOADS) -> None:
        """Count what is there instead of what was added up so far.

        Not while files begin: one that was charged for a moment ago may not be there yet.
        """
        before = await self._counted(requester_id)
        if before.charged_at + BEGINNING_MS > await self._store.now():
            return
        after = before._replace(parts={**before.parts, part: await count()})
        with contextlib.suppress(DocumentConflict):  # a file has begun meanwhile
            await self._keep(requester_id, after)

    async def _counted(self, requester_id: str) -> Stored:
        for document in await self._store.documents(STORED, requester_id):
            body = json.loads(document.body)
            return Stored(body["parts"], body["charged_at"], document.version)
        return Stored({})

    async def _keep(self, requester_id: str, stored: Stored) -> None:
        body = json.dumps({"parts": stored.parts, "charged_at": stored.charged_at})
        await self._store.put_document(Document(STORED, requester_id, body, stored.version))

    async def _change(self, requester_id: str, change: Callable[[Stored], Stored]) -> None:
        for race in range(RACES):
            after = change(await self._counted(requester_id))
            with contextlib.suppress(DocumentConflict):
                await self._keep(requester_id, after)
                return
            await asyncio.sleep(random.uniform(0, 0.001 * race))  # noqa: S311 - so that writers do not march in step
        raise DocumentConflict("many files of this tenant begin at the same moment; try again")


class Stored(NamedTuple):
    """The bytes of a tenant's files by part, when it was last charged for one, and the version of this document."""

    parts: dict[str, int]
    charged_at: int = 0
    version: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.parts.values())

    def plus(self, part: str, more: int) -> Stored:
        """The same with more bytes in one part, or fewer; never below 0."""
        return self._replace(parts={**self.parts, part: max(0, self.parts.get(part, 0) + more)})


def slot_of(requester_id: str) -> str:
    """The concurrency key of a tenant with a quota of running jobs."""
    return f"callsheet.tenant:{requester_id}"


def refused(quota: str, requester_id: str, *, limit: int, used: int) -> QuotaExceeded:
    """The error of a quota that is used up, counted for the operators; no tenant's name gets into a metric."""
    quota_refused(quota)
    return QuotaExceeded(quota, requester_id, limit=limit, used=used)


def _read(document: Document) -> Quota:
    body = json.loads(document.body)
    return Quota(**{name: value for name, value in body.items() if name in Quota._fields})
