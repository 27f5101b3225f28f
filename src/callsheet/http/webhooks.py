"""`/v1/webhooks`: read deliveries, send events again, and list failing destinations.

`webhook_endpoints.py` serves endpoints.
"""

from __future__ import annotations

import logging
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from starlette.requests import Request

from callsheet.kernel.job import Delivery
from callsheet.outbox.health import troubled
from callsheet.outbox.replay import DeliveryNotFound, Selection, find_one, replay_many, replay_one
from callsheet.outbox.signing import IS_FIELD
from callsheet.store.outbox import OutboxFilter

from . import problems
from .audit import act
from .auth import allowed
from .bodies import documented, read
from .json_text import JsonAnswer
from .keys import Principal
from .site import site_of
from .webhook_bodies import (
    NO_NUL,
    DeliveryList,
    DestinationList,
    ReplayedBody,
    ReplaySelection,
    WholeDelivery,
    Word,
    delivery_body,
    destination_body,
    whole_delivery,
)

log = logging.getLogger("callsheet.audit")
ALWAYS = ("unauthorized", "forbidden", "too_many_requests", "store_unavailable")
BODY = ("validation_failed", "unsupported_media_type", "body_too_large")
Reader = Annotated[Principal, Depends(allowed("jobs:read"))]
Writer = Annotated[Principal, Depends(allowed("jobs:write"))]
EventId = Annotated[str, Path(description="The event's id.", examples=["evt_0199f0c27f7a7d51b3cd0d52b5f0f5b1"])]
router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"])


@router.get(
    "/deliveries",
    summary="List deliveries",
    response_model=DeliveryList,
    responses=problems.responses(*ALWAYS, "validation_failed"),
)
async def list_deliveries(  # noqa: PLR0913, PLR0917 - each is a filter
    request: Request,
    who: Reader,
    status: Annotated[Word | None, Query(description="Only events in this status.")] = None,
    job_id: Annotated[str | None, Query(max_length=64, pattern=NO_NUL)] = None,
    endpoint: Annotated[str | None, Query(max_length=2_048, pattern=NO_NUL)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: Annotated[
        str | None, Query(max_length=128, pattern=NO_NUL, description="`next` of the page before.")
    ] = None,
) -> JsonAnswer:
    """List deliveries, newest first."""
    where = OutboxFilter(who.sees, endpoint, after=cursor, newest_first=True)
    found = await site_of(request).engine.store.outbox_find(
        job_id=job_id, status=Delivery(status) if status else None, limit=limit + 1, where=where
    )
    last = found[limit - 1].event_id if len(found) > limit else None
    return JsonAnswer({"deliveries": [delivery_body(event) for event in found[:limit]], "next": last})


@router.get(
    "/deliveries/{event_id}",
    summary="Read a delivery",
    response_model=WholeDelivery,
    responses=problems.responses(*ALWAYS, "delivery_not_found"),
)
async def get_delivery(request: Request, event_id: EventId, who: Reader) -> JsonAnswer:
    """Read one delivery with its body and the log of its attempts."""
    store = site_of(request).engine.store
    return JsonAnswer(whole_delivery(await find_one(store, _known(event_id), who.sees)))


@router.post(
    "/deliveries/{event_id}/replay",
    status_code=202,
    summary="Send an event again",
    response_model=WholeDelivery,
    responses=problems.responses(*ALWAYS, "delivery_not_found"),
)
async def replay_delivery(request: Request, event_id: EventId, who: Writer) -> JsonAnswer:
    """Send an event again with the same id and body, and fresh attempts. A waiting event is left unchanged."""
    event = await replay_one(site_of(request).engine.store, _known(event_id), who.sees)
    log.info("key %s replays event %s", who.key_id, event.event_id)
    await act(request, "webhook.replayed", target=event.event_id, requester_id=event.requester_id)
    return JsonAnswer(whole_delivery(event), 202)


@router.post(
    "/deliveries/replay",
    status_code=202,
    summary="Send many events again",
    response_model=ReplayedBody,
    openapi_extra=documented(ReplaySelection, required=False),
    responses=problems.responses(*ALWAYS, *BODY),
)
async def replay_deliveries(request: Request, who: Writer) -> JsonAnswer:
    """Send events again, oldest first, `rate` per second. Waiting events are left unchanged, so repeating is safe."""
    asked = await read(request, ReplaySelection) if await request.body() else ReplaySelection()
    wanted = Selection(
        who.sees,
        Delivery(asked.status),
        asked.job_id,
        asked.endpoint,
        asked.created_from,
        asked.created_to,
        rate_per_s=asked.rate,
        limit=asked.limit,
    )
    done = await replay_many(site_of(request).engine.store, wanted)
    log.info("key %s replays %d events", who.key_id, done.replayed)
    await act(request, "webhook.replayed", target="many", replayed=done.replayed)
    return JsonAnswer(done._asdict(), 202)


@router.get(
    "/destinations",
    summary="List destinations in trouble",
    response_model=DestinationList,
    responses=problems.responses(*ALWAYS),
)
async def list_destinations(request: Request, who: Reader) -> JsonAnswer:
    """List failing destinations with the time of their next probe. Events for these wait without spending attempts."""
    found = await troubled(site_of(request).engine.store, who.sees)
    return JsonAnswer({"destinations": [destination_body(where, breaker) for where, breaker in found.items()]})


def _known(event_id: str) -> str:
    if not IS_FIELD(event_id):
        raise DeliveryNotFound("no such delivery")
    return event_id
