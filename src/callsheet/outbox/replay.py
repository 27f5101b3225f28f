"""Replays: settled events are delivered again with the same id and body, spread over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from callsheet.kernel.errors import CallsheetError
from callsheet.kernel.job import Delivery
from callsheet.store.outbox import OutboxFilter, Replay

from .decide import log_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from callsheet.kernel.job import OutboxEvent
    from callsheet.store.protocol import Store

PAGE = 500
MOST = 10_000
RATE_PER_S = 20.0


class DeliveryNotFound(CallsheetError):
    """The requester has no outbox event with the given id."""

    code = "delivery_not_found"


class Selection(NamedTuple):
    """A filter for events to replay, and the rate per second. `reason` matches the reason in a dead letter's log."""

    requester_id: str | None
    status: Delivery = Delivery.DEAD_LETTER
    job_id: str | None = None
    endpoint: str | None = None
    created_from: int | None = None
    created_to: int | None = None
    reason: str | None = None
    rate_per_s: float = RATE_PER_S
    limit: int = MOST


class Replayed(NamedTuple):
    """The number of events queued again; `more` is true if the selection has further events."""

    replayed: int
    more: bool


async def find_one(store: Store, event_id: str, requester_id: str | None) -> OutboxEvent:
    """Return an event by id; raises DeliveryNotFound, also for another requester's event."""
    where = OutboxFilter(requester_id=requester_id, event_id=event_id)
    events = await store.outbox_find(where=where, limit=1)
    if not events:
        raise DeliveryNotFound(f"no delivery {event_id[:128]}")
    return events[0]


async def replay_one(store: Store, event_id: str, requester_id: str | None) -> OutboxEvent:
    """Queue a settled event for immediate delivery and return the event; a pending event stays unchanged."""
    event = await find_one(store, event_id, requester_id)
    await store.outbox_replay([Replay(event.event_id)])
    return await find_one(store, event_id, requester_id)


async def replay_many(store: Store, selection: Selection) -> Replayed:
    """Queue the selected events again, oldest first. Repeating the call skips events already queued."""
    after: str | None = None
    count, fits = 0, _fits(selection.reason)
    while count < selection.limit:
        where = OutboxFilter(
            selection.requester_id,
            selection.endpoint,
            created_from=selection.created_from,
            created_to=selection.created_to,
            after=after,
        )
        page = await store.outbox_find(job_id=selection.job_id, status=selection.status, limit=PAGE, where=where)
        fitting = [event for event in page if fits(event)]
        selected = fitting[: selection.limit - count]
        delays = (round((count + n) * 1000 / selection.rate_per_s) for n in range(len(selected)))
        replays = [Replay(event.event_id, delay_ms) for event, delay_ms in zip(selected, delays, strict=True)]
        count += sum(await store.outbox_replay(replays))
        if len(page) < PAGE:
            return Replayed(count, more=len(selected) < len(fitting))
        after = page[-1].event_id
    return Replayed(count, more=True)


def _fits(reason: str | None) -> Callable[[OutboxEvent], bool]:
    return lambda event: reason is None or log_of(event.error).get("reason") == reason
