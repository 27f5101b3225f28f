"""The part of the store protocol that is about outbox events: the same ownership as jobs have, and shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from callsheet.kernel.job import Claim, Delivery, OutboxEvent
    from callsheet.kernel.settlement import OutboxSettlement

    from .protocol import Beat, Settled


class Room(NamedTuple):
    """How many more events of one destination a claim may take; 0 leaves it out."""

    requester_id: str
    destination: str
    room: int


class Sharing(NamedTuple):
    """How an outbox claim is shared out: `each` of a destination unless it is among `rooms`; nothing `without`.

    `without` are requesters. As it stands everything may go to one destination.
    """

    each: int = 1_000_000
    rooms: tuple[Room, ...] = ()
    without: tuple[str, ...] = ()


class OutboxFilter(NamedTuple):
    """Which outbox events are looked for beside job and status. `requester_id` None is for operators only.

    `after` is an event's id: those that come after it. `newest_first` turns the order, and the meaning of `after`.
    """

    requester_id: str | None = None
    endpoint: str | None = None
    event_id: str | None = None
    created_from: int | None = None
    created_to: int | None = None
    after: str | None = None
    newest_first: bool = False


OPEN_HANDED = Sharing()
ANY_EVENT = OutboxFilter()


class Replay(NamedTuple):
    """An ended outbox event that is to be delivered once more, not before so long from now."""

    event_id: str
    delay_ms: int = 0


class OutboxVerbs(Protocol):
    """What every store does with outbox events."""

    async def outbox_claim(
        self, worker_id: str, *, limit: int, lease_ms: int, sharing: Sharing = OPEN_HANDED, now: int | None = None
    ) -> list[OutboxEvent]:
        """Take due outbox events, expired leases included.

        S22: the same ownership protocol as jobs.
        S33: of each destination of a requester no more than its share, the oldest; of what is left by that the oldest
            of all. A destination's backlog costs the claim no more than one event does. Expired leases come first,
            and only a room of 0, or a requester left out, keeps them back.
        """
        ...

    async def outbox_heartbeat(self, claims: Sequence[Claim], *, lease_ms: int, now: int | None = None) -> list[Beat]:
        """Extend many outbox leases in one write; a stale one extends nothing."""
        ...

    async def outbox_settle(self, settlements: Sequence[OutboxSettlement], *, now: int | None = None) -> list[Settled]:
        """Record deliveries. S23: fenced like jobs; a stale one changes nothing."""
        ...

    async def outbox_find(
        self,
        *,
        job_id: str | None = None,
        status: Delivery | None = None,
        limit: int = 50,
        where: OutboxFilter = ANY_EVENT,
    ) -> list[OutboxEvent]:
        """Outbox events for inspection, oldest first unless asked. S34: only the requester's own."""
        ...

    async def outbox_replay(self, replays: Sequence[Replay], *, now: int | None = None) -> list[bool]:
        """Bring ended outbox events back, with their attempts from 0; which were.

        S35: only one that has ended comes back: doing it twice is doing it once. Id and body stay.
        """
        ...
