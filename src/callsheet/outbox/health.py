"""The breakers of all destinations, shared by the processes of a store as documents, so that a restart forgets nothing.

A destination without trouble has no document. Of several processes one makes the probe: who changes the document first.
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
    """Whom events go to: a registered endpoint, or scheme, host and port of a URL. Each requester has its own."""

    requester_id: str
    name: str


class Health:
    """What this process knows of destinations."""

    def __init__(self, store: Store, *, patience_ms: int = 60_000) -> None:
        self._store = store
        self._patience_ms = patience_ms
        self._known: dict[Destination, Breaker] = {}
        self._versions: dict[Destination, int] = {}
        self._read_at = -REFRESH_MS

    def breaker(self, where: Destination) -> Breaker:
        """The breaker of a destination."""
        return self._known.get(where, Breaker())

    def shut(self) -> Iterator[Destination]:
        """The destinations that get nothing now."""
        return (where for where, breaker in self._known.items() if breaker.state is not State.CLOSED)

    def states(self) -> list[State]:
        """The states of all breakers that are known here."""
        return [breaker.state for breaker in list(self._known.values())]

    async def refresh(self, now: int) -> None:
        """Read what other processes have noted, at most every two seconds."""
        if 0 <= now - self._read_at < REFRESH_MS:
            return
        self._read_at = now
        found = {_where(document): document for document in await self._store.documents(KIND)}
        for where in [where for where in self._versions if where not in found]:
            self._forget(where)  # it was healed by another process
        for where, document in found.items():
            if self._versions.get(where) != document.version:
                self._versions[where] = document.version
                self._known[where] = read(document.body)

    def due(self, now: int) -> list[Destination]:
        """The shut destinations that may be tried with one event."""
        return [where for where, breaker in self._known.items() if breaker.may_probe(now)]

    async def begin_probe(self, where: Destination, now: int) -> bool:
        """Take the probe for this process; False when another has it."""
        return await self._save(where, self.breaker(where).probing(now, self._patience_ms))

    async def record(self, where: Destination, *, ok: bool, now: int) -> Breaker:
        """Note how an attempt went; the breaker as it is then."""
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
        """Write a breaker; False when another process was first, whose word then counts at the next refresh."""
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
    """The destinations that are in trouble, of one requester or, with None, of all."""
    found = {_where(document): read(document.body) for document in await store.documents(KIND)}
    return {where: breaker for where, breaker in found.items() if requester_id in (None, where.requester_id)}


def _where(document: Document) -> Destination:
    body = json.loads(document.body)
    return Destination(body["requester_id"], body["name"])


def _id(where: Destination) -> str:
    return hashlib.sha256(f"{len(where.requester_id)}:{where.requester_id}{where.name}".encode()).hexdigest()
