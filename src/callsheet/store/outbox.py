"""The outbox part of the store protocol: events have claims and leases as jobs do, and destinations have shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from callsheet.kernel.job import Claim, Delivery, OutboxEvent
from callsheet.kernel.settlement import OutboxSettlement

if TYPE_CHECKING:
    from .protocol import HeartbeatResult, Settled


class DestinationLimit(NamedTuple):
    """The remaining number of events that a claim may take of one destination; 0 excludes the destination."""

    requester_id: str
    destination: str
    limit: int


class ClaimShares(NamedTuple):
    """Limits of an outbox claim: `each` events per destination, or the destination's number in `limits`.

    `without` are requesters whose events are excluded. The default lets one destination take the whole claim.
    """

    each: int = 1_000_000
    limits: tuple[DestinationLimit, ...] = ()
    without: tuple[str, ...] = ()


class OutboxFilter(NamedTuple):
    """A filter over outbox events, next to job and status. `requester_id` None is for operators only.

    `after` is an event's id: only later events are returned. `newest_first` reverses the order, and the meaning of
    `after`.
    """

    requester_id: str | None = None
    endpoint: str | None = None
    event_id: str | None = None
    created_from: int | None = None
    created_to: int | None = None
    after: str | None = None
    newest_first: bool = False


UNLIMITED = ClaimShares()
ANY_EVENT = OutboxFilter()


class Replay(NamedTuple):
    """An ended outbox event to deliver once more, no earlier than `delay_ms` from now."""

    event_id: str
    delay_ms: int = 0


class OutboxVerbs(Protocol):
    """The verbs of every store for outbox events."""

    async def outbox_claim(
        self, worker_id: str, *, limit: int, lease_ms: int, shares: ClaimShares = UNLIMITED, now: int | None = None
    ) -> list[OutboxEvent]:
        """Take due outbox events, expired leases included.

        S22: the same ownership protocol as jobs.
        S33: per (requester, destination) at most its share of events, oldest first; if more than `limit` qualify, the
            oldest overall. A destination's backlog costs the claim no more than one event does. Expired leases come
            first; only a limit of 0 or an excluded requester holds them back.
        """

    async def outbox_heartbeat(
        self, claims: Sequence[Claim], *, lease_ms: int, now: int | None = None
    ) -> list[HeartbeatResult]:
        """Extend many outbox leases in one write; a stale claim extends nothing."""

    async def outbox_settle(self, settlements: Sequence[OutboxSettlement], *, now: int | None = None) -> list[Settled]:
        """Record deliveries. S23: fenced like jobs; a stale settlement changes nothing."""

    async def outbox_find(
        self,
        *,
        job_id: str | None = None,
        status: Delivery | None = None,
        limit: int = 50,
        where: OutboxFilter = ANY_EVENT,
    ) -> list[OutboxEvent]:
        """Return outbox events for inspection, oldest first by default. S34: a requester sees only its own events."""

    async def outbox_replay(self, replays: Sequence[Replay], *, now: int | None = None) -> list[bool]:
        """Return ended outbox events to the queue with 0 attempts; the answer says which events returned.

        S35: only an ended event returns, so repeating a replay changes nothing. Id and body stay.
        """
