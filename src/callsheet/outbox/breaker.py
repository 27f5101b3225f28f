"""A circuit breaker per destination: after failures deliveries pause, then a single event probes.

closed → open after 10 failures in a row, or when half of the last 20 attempts failed; open → half-open when its time is
over (30 s, twice as long after each probe that fails, at most 1 h); half-open → closed or open by that one probe.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from callsheet.kernel.errors import DocumentConflict
from callsheet.kernel.job import Json
from callsheet.net.backoff import doubled
from callsheet.store.clock import TOLERANCE_MS
from callsheet.store.protocol import Document

if TYPE_CHECKING:
    from callsheet.store.protocol import Store


IN_A_ROW = 10
SEEN, RATE = 20, 0.5
WORTH_STORING = 3  # consecutive failures before the breaker is written for other processes
FIRST_OPEN_MS = 30_000
MOST_OPEN_MS = 3_600_000
DISABLE_AFTER_MS = 5 * 86_400_000
KIND = "webhook_destination"
REFRESH_MS = 2_000


class State(StrEnum):
    """Breaker state: closed sends all events, open sends none, half-open sends one probe."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker(NamedTuple):
    """The failure history of one destination. Times are milliseconds of the store's clock.

    `probe_at` is the time of an open breaker's next probe, or the deadline of a half-open breaker's running probe.
    """

    state: State = State.CLOSED
    failures: int = 0
    recent: tuple[bool, ...] = ()
    open_ms: int = 0
    probe_at: int = 0
    failing_since: int | None = None

    def after(self, *, ok: bool, now: int) -> Breaker:
        """Return the breaker after an attempt succeeded or failed."""
        if ok:
            was_closed = self.state is State.CLOSED
            return Breaker(recent=(*self.recent, True)[-SEEN:] if was_closed else ())
        recent = (*self.recent, False)[-SEEN:]
        after_failure = self._replace(
            failures=self.failures + 1,
            recent=recent,
            failing_since=now if self.failing_since is None else self.failing_since,
        )
        if self.state is State.OPEN:
            return after_failure  # the attempt began before the breaker opened
        rate = len(recent) == SEEN and recent.count(False) >= SEEN * RATE
        if self.state is State.HALF_OPEN or after_failure.failures >= IN_A_ROW or rate:
            return after_failure.open(now)
        return after_failure

    def open(self, now: int) -> Breaker:
        """Return the breaker opened, with twice the previous pause (30 s at first, at most 1 h)."""
        open_ms = doubled(self.open_ms, FIRST_OPEN_MS, MOST_OPEN_MS)
        return self._replace(state=State.OPEN, open_ms=open_ms, probe_at=now + open_ms, recent=())

    def probing(self, now: int, patience_ms: int) -> Breaker:
        """Return the breaker half-open, with a probe that must report within `patience_ms`."""
        return self._replace(state=State.HALF_OPEN, probe_at=now + patience_ms)

    def may_probe(self, now: int) -> bool:
        """Return whether a probe is due, including a probe that missed its deadline.

        A `probe_at` beyond the longest pause was written by a clock that ran ahead, and counts as due.
        """
        longest_ms = self.open_ms if self.state is State.OPEN else MOST_OPEN_MS
        return self.state is not State.CLOSED and not now < self.probe_at <= now + longest_ms + TOLERANCE_MS

    @property
    def worth_noting(self) -> bool:
        """Return whether the breaker is stored for other processes: not closed, or three failures."""
        return self.state is not State.CLOSED or self.failures >= WORTH_STORING

    def is_hopeless(self, now: int) -> bool:
        """Return whether every attempt failed for five days."""
        return self.failing_since is not None and now - self.failing_since >= DISABLE_AFTER_MS

    def json(self) -> Json:
        """Return the breaker as JSON for its document."""
        fields = self._asdict()
        del fields["recent"]
        return json.dumps(fields)


def read(body: Json) -> Breaker:
    """Parse a breaker from its JSON; ignores unknown fields."""
    fields = {name: value for name, value in json.loads(body).items() if name in Breaker._fields}
    fields.pop("recent", None)
    return Breaker(**{**fields, "state": State(fields.get("state", "closed"))})


class Destination(NamedTuple):
    """A requester's delivery destination: `name` is a registered endpoint's id, or scheme, host and port of a URL."""

    requester_id: str
    name: str


class Health:
    """A process's copy of the breakers, synchronised with the store's documents."""

    def __init__(self, store: Store, *, patience_ms: int = 60_000) -> None:
        self._store = store
        self._patience_ms = patience_ms
        self._breakers: dict[Destination, Breaker] = {}
        self._versions: dict[Destination, int] = {}
        self._read_at = -REFRESH_MS

    def breaker(self, where: Destination) -> Breaker:
        """Return a destination's breaker, closed if unknown."""
        return self._breakers.get(where, Breaker())

    def shut(self) -> Iterator[Destination]:
        """Iterate over the destinations whose breaker is not closed."""
        return (where for where, breaker in self._breakers.items() if breaker.state is not State.CLOSED)

    def states(self) -> list[State]:
        """Return the states of all breakers in this process."""
        return [breaker.state for breaker in list(self._breakers.values())]

    async def refresh(self, now: int) -> None:
        """Read the breakers written by other processes, at most every two seconds."""
        if 0 <= now - self._read_at < REFRESH_MS:
            return
        self._read_at = now
        documents = {_where(document): document for document in await self._store.documents(KIND)}
        for where in [where for where in self._versions if where not in documents]:
            self._forget(where)  # another process saw the destination recover
        for where, document in documents.items():
            if self._versions.get(where) != document.version:
                self._versions[where] = document.version
                self._breakers[where] = read(document.body)

    def due(self, now: int) -> list[Destination]:
        """Return the destinations due for a probe with one event."""
        return [where for where, breaker in self._breakers.items() if breaker.may_probe(now)]

    async def begin_probe(self, where: Destination, now: int) -> bool:
        """Claim a destination's probe for this process; returns False if another process has the probe."""
        return await self._save(where, self.breaker(where).probing(now, self._patience_ms))

    async def record(self, where: Destination, *, ok: bool, now: int) -> Breaker:
        """Record an attempt's outcome and return the updated breaker."""
        before = self.breaker(where)
        after = before.after(ok=ok, now=now)
        self._breakers[where] = after
        if ok and where in self._versions:
            self._forget(where)
            await self._store.delete_document(KIND, _id(where))
        elif after.worth_noting and (after.state is not before.state or not before.worth_noting):
            await self._save(where, after)
        if ok and all(after.recent):
            self._breakers.pop(where, None)
        return after

    def _forget(self, where: Destination) -> None:
        self._versions.pop(where, None)
        self._breakers.pop(where, None)

    async def _save(self, where: Destination, breaker: Breaker) -> bool:
        """Write a breaker's document; returns False after a conflict: the next refresh reads the winner's version."""
        body = json.dumps({**json.loads(breaker.json()), "requester_id": where.requester_id, "name": where.name})
        try:
            document = await self._store.put_document(Document(KIND, _id(where), body, self._versions.get(where, 0)))
        except DocumentConflict:
            self._read_at = -REFRESH_MS
            return False
        self._versions[where] = document.version
        self._breakers[where] = breaker
        return True


async def stored_breakers(store: Store, requester_id: str | None = None) -> dict[Destination, Breaker]:
    """Return the destinations with a stored breaker, of one requester or (None) of all requesters."""
    breakers = {_where(document): read(document.body) for document in await store.documents(KIND)}
    return {where: breaker for where, breaker in breakers.items() if requester_id in (None, where.requester_id)}


def _where(document: Document) -> Destination:
    body = json.loads(document.body)
    return Destination(body["requester_id"], body["name"])


def _id(where: Destination) -> str:
    return hashlib.sha256(f"{len(where.requester_id)}:{where.requester_id}{where.name}".encode()).hexdigest()
