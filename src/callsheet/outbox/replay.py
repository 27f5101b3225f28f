"""Replays: ended events go out once more, spread over time, with the id and the body that they had."""

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
    """No such outbox event for this requester."""

    code = "delivery_not_found"


class Selection(NamedTuple):
    """Which ended events, and how many of them in a second. `reason` is the one that dead letters have in their log."""

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
    """How many wait again, and whether more of the selection are left."""

    replayed: int
    more: bool


async def find_one(store: Store, event_id: str, requester_id: str | None) -> OutboxEvent:
    """One event; raises DeliveryNotFound also for another requester's."""
    where = OutboxFilter(requester_id=requester_id, event_id=event_id)
    found = await store.outbox_find(where=where, limit=1)
    if not found:
        raise DeliveryNotFound(f"no delivery {event_id[:128]}")
    return found[0]


async def replay_one(store: Store, event_id: str, requester_id: str | None) -> OutboxEvent:
    """Deliver one once more, as soon as may be; one that has not ended yet is left as it is."""
    event = await find_one(store, event_id, requester_id)
    await store.outbox_replay([Replay(event.event_id)])
    return await find_one(store, event_id, requester_id)


async def replay_many(store: Store, wanted: Selection) -> Replayed:
    """Deliver a selection once more, the oldest first. Doing it twice brings nothing back that already waits."""
    after: str | None = None
    count, fits = 0, _fits(wanted.reason)
    while count < wanted.limit:
        where = OutboxFilter(
            wanted.requester_id,
            wanted.endpoint,
            created_from=wanted.created_from,
            created_to=wanted.created_to,
            after=after,
        )
        page = await store.outbox_find(job_id=wanted.job_id, status=wanted.status, limit=PAGE, where=where)
        fitting = [event for event in page if fits(event)]
        chosen = fitting[: wanted.limit - count]
        delays = (round((count + n) * 1000 / wanted.rate_per_s) for n in range(len(chosen)))
        replays = [Replay(event.event_id, delay_ms) for event, delay_ms in zip(chosen, delays, strict=True)]
        count += sum(await store.outbox_replay(replays))
        if len(page) < PAGE:
            return Replayed(count, more=len(chosen) < len(fitting))
        after = page[-1].event_id
    return Replayed(count, more=True)


def _fits(reason: str | None) -> Callable[[OutboxEvent], bool]:
    return lambda event: reason is None or log_of(event.error).get("reason") == reason
