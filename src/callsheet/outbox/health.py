"""The breakers of all destinations, stored as documents: shared between processes and kept across restarts.

A healthy destination has no document. One process makes the probe: the first to update the document.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from callsheet.kernel.errors import DocumentConflict
from callsheet.store.protocol import Document

from .breaker import Breaker, State, read

if TYPE_CHECKING:
    from callsheet.store.protocol import Store

KIND = "webhook_destination"
REFRESH_MS = 2_000


class Destination(NamedTuple):
    """A requester's delivery destination: `name` is a registered endpoint's id, or scheme, host and port of a URL."""

    requester_id: str
    name: str


class Health:
    """A process's copy of the breakers, synchronised with the store's documents."""

    def __init__(self, store: Store, *, patience_ms: int = 60_000) -> None:
        self._store = store
        self._patience_ms = patience_ms
        self._known: dict[Destination, Breaker] = {}
        self._versions: dict[Destination, int] = {}
        self._read_at = -REFRESH_MS

    def breaker(self, where: Destination) -> Breaker:
        """Return a destination's breaker, closed if unknown."""
        return self._known.get(where, Breaker())

    def shut(self) -> Iterator[Destination]:
        """Iterate over the destinations whose breaker is not closed."""
        return (where for where, breaker in self._known.items() if breaker.state is not State.CLOSED)

    def states(self) -> list[State]:
        """Return the states of all breakers in this process."""
        return [breaker.state for breaker in list(self._known.values())]

    async def refresh(self, now: int) -> None:
        """Read the breakers written by other processes, at most every two seconds."""
        if 0 <= now - self._read_at < REFRESH_MS:
            return
        self._read_at = now
        found = {_where(document): document for document in await self._store.documents(KIND)}
        for where in [where for where in self._versions if where not in found]:
            self._forget(where)  # another process saw the destination recover
        for where, document in found.items():
            if self._versions.get(where) != document.version:
                self._versions[where] = document.version
                self._known[where] = read(document.body)

    def due(self, now: int) -> list[Destination]:
        """Return the destinations due for a probe with one event."""
        return [where for where, breaker in self._known.items() if breaker.may_probe(now)]

    async def begin_probe(self, where: Destination, now: int) -> bool:
        """Claim a destination's probe for this process; returns False if another process has the probe."""
        return await self._save(where, self.breaker(where).probing(now, self._patience_ms))

    async def record(self, where: Destination, *, ok: bool, now: int) -> Breaker:
        """Record an attempt's outcome and return the updated breaker."""
        before = self.breaker(where)
        after = before.after(ok=ok, now=now)
        self._known[where] = after
        if ok and where in self._versions:
            self._forget(where)
            await self._store.delete_document(KIND, _id(where))
        elif after.worth_noting and (after.state is not before.state or not before.worth_noting):
            await self._save(where, after)
        if ok and all(after.recent):
            self._known.pop(where, None)
        return after

    def _forget(self, where: Destination) -> None:
        self._versions.pop(where, None)
        self._known.pop(where, None)

    async def _save(self, where: Destination, breaker: Breaker) -> bool:
        """Write a breaker's document; returns False after a conflict: the next refresh reads the winner's version."""
        body = json.dumps({**json.loads(breaker.json()), "requester_id": where.requester_id, "name": where.name})
        try:
            kept = await self._store.put_document(Document(KIND, _id(where), body, self._versions.get(where, 0)))
        except DocumentConflict:
            self._read_at = -REFRESH_MS
            return False
        self._versions[where] = kept.version
        self._known[where] = breaker
        return True


async def troubled(store: Store, requester_id: str | None = None) -> dict[Destination, Breaker]:
    """Return the destinations with a stored breaker, of one requester or (None) of all requesters."""
    found = {_where(document): read(document.body) for document in await store.documents(KIND)}
    return {where: breaker for where, breaker in found.items() if requester_id in (None, where.requester_id)}


def _where(document: Document) -> Destination:
    body = json.loads(document.body)
    return Destination(body["requester_id"], body["name"])


def _id(where: Destination) -> str:
    return hashlib.sha256(f"{len(where.requester_id)}:{where.requester_id}{where.name}".encode()).hexdigest()
