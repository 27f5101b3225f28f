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
    from collections.abc import Callable, Mapping

    from callsheet.store.protocol import Store

KIND = "quota"
STORED = "stored_bytes"
UPLOADS, VIDEOS, ARTIFACTS = "uploads", "videos", "artifacts"  # the parts of what a tenant stores
KEPT_S = 5.0  # how long what was read is believed: a change made through another process is seen after this
RACES = 100
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

    async def refresh(self, *, now: bool = False) -> None:
        """Read what operators have set, unless that was done a moment ago. Without the store the old numbers hold."""
        if not now and time.monotonic() - self._read_at < KEPT_S:
            return
        async with self._reading:
            if now or time.monotonic() - self._read_at >= KEPT_S:
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

    async def stored(self, requester_id: str) -> int:
        """The bytes of files that are counted for a tenant."""
        return sum((await self._counted(requester_id))[0].values())

    async def check_bytes(self, requester_id: str, more: int) -> None:
        """Raise QuotaExceeded where a tenant has no room for so many bytes; nothing is counted."""
        limit = self.known(requester_id).bytes
        if limit and (used := await self.stored(requester_id)) + more > limit:
            raise refused("bytes", requester_id, limit=limit, used=used)

    async def charge(self, requester_id: str, more: int, part: str = UPLOADS) -> None:
        """Count bytes that a tenant is about to store; raises QuotaExceeded, and then none is counted."""
        limit = self.known(requester_id).bytes or 0

        def count(parts: dict[str, int]) -> None:
            if limit and (used := sum(parts.values())) + more > limit:
                raise refused("bytes", requester_id, limit=limit, used=used)
            parts[part] = parts.get(part, 0) + more

        await self._change(requester_id, count)

    async def add(self, requester_id: str, more: int, part: str = UPLOADS) -> None:
        """Count bytes that are there already, or that are gone (below 0); it is never refused."""
        await self._change(requester_id, lambda parts: parts.update({part: max(0, parts.get(part, 0) + more)}))

    async def recount(self, requester_id: str, found: int, part: str = UPLOADS) -> None:
        """Count what was found to be there instead of what was added up so far."""
        await self._change(requester_id, lambda parts: parts.update({part: found}))

    async def _counted(self, requester_id: str) -> tuple[dict[str, int], int]:
        found = await self._store.documents(STORED, requester_id)
        return (json.loads(found[0].body), found[0].version) if found else ({}, 0)

    async def _change(self, requester_id: str, change: Callable[[dict[str, int]], None]) -> None:
        for race in range(RACES):
            parts, version = await self._counted(requester_id)
            change(parts)
            with contextlib.suppress(DocumentConflict):
                await self._store.put_document(Document(STORED, requester_id, json.dumps(parts), version))
                return
            await asyncio.sleep(random.uniform(0, 0.001 * race))  # noqa: S311 - so that writers do not march in step
        raise DocumentConflict("many files of this tenant begin at the same moment; try again")


def refused(quota: str, requester_id: str, *, limit: int, used: int) -> QuotaExceeded:
    """The error of a quota that is used up, counted for the operators; no tenant's name gets into a metric."""
    quota_refused(quota)
    return QuotaExceeded(quota, requester_id, limit=limit, used=used)


def _read(document: Document) -> Quota:
    body = json.loads(document.body)
    return Quota(**{name: value for name, value in body.items() if name in Quota._fields})
