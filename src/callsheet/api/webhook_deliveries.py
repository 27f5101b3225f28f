"""`/v1/webhooks/deliveries` and `/v1/webhooks/destinations`: events as they are sent, and destinations that fail.

`webhook_endpoints.py` serves the endpoints that receive events.
"""

from __future__ import annotations

import logging
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from callsheet.http import problems
from callsheet.http.audit import act
from callsheet.http.json_bodies import JsonAnswer, parse_json, read, request_body
from callsheet.http.parameters import ALWAYS, BODY, NO_NUL, Reader, Writer
from callsheet.http.state import state_of
from callsheet.kernel.job import Delivery, OutboxEvent
from callsheet.outbox.breaker import Breaker, Destination, stored_breakers
from callsheet.outbox.decide import attempts_in, log_of
from callsheet.outbox.replay import DeliveryNotFound, Selection, find_one, replay_many, replay_one
from callsheet.outbox.signing import IS_FIELD
from callsheet.store.outbox import OutboxFilter

MAX_MS = 10**15
Ms = Annotated[int, Field(ge=0, le=MAX_MS, description="Milliseconds since the epoch.")]
Word = Literal["pending", "delivering", "delivered", "dead_letter"]
Text = Annotated[str, Field(max_length=2_048, pattern=NO_NUL)]


class DeliveryBody(BaseModel):
    """The delivery of an event. `log` lists its last attempts, `response` holds up to 1 KiB of the last response."""

    event_id: str
    job_id: str
    requester_id: str
    endpoint: str
    status: Word
    attempts: int
    created_at: Ms
    next_attempt_at: Ms | None
    ended_at: Ms | None
    reason: str | None
    log: list[dict[str, Any]]
    response: str | None


class DeliveryList(BaseModel):
    """A page of deliveries; `next` is the cursor of the next page, null on the last page."""

    deliveries: list[DeliveryBody]
    next: str | None


class WholeDelivery(DeliveryBody):
    """A delivery with the JSON body that is sent."""

    body: Any


class ReplaySelection(BaseModel):
    """Selects ended deliveries to send again; without `created_from` and `created_to`, deliveries of any age."""

    model_config = ConfigDict(extra="forbid")
    status: Literal["dead_letter", "delivered"] = "dead_letter"
    job_id: Text | None = None
    endpoint: Text | None = None
    created_from: Ms | None = None
    created_to: Ms | None = None
    rate: float = Field(default=20.0, gt=0, le=1_000, description="So many in a second.")
    limit: int = Field(default=10_000, ge=1, le=10_000)


class ReplayedBody(BaseModel):
    """The number of deliveries requeued. `more` true: further deliveries match, so repeat the request."""

    replayed: int
    more: bool


class HealthBody(BaseModel):
    """The health of a destination."""

    state: Literal["closed", "open", "half_open"]
    failures: int
    failing_since: Ms | None
    next_probe_at: Ms | None


class DestinationBody(BaseModel):
    """A failing destination, with its health."""

    requester_id: str
    destination: str
    health: HealthBody


class DestinationList(BaseModel):
    """All failing destinations; a destination missing here is healthy."""

    destinations: list[DestinationBody]


def delivery_body(event: OutboxEvent) -> dict[str, Any]:
    """Return a delivery as a JSON value."""
    log = log_of(event.error)
    return {
        "event_id": event.event_id,
        "job_id": event.job_id,
        "requester_id": event.requester_id,
        "endpoint": event.endpoint,
        "status": event.status.value,
        "attempts": event.attempt_count,
        "created_at": event.created_at,
        "next_attempt_at": event.run_at if event.status is Delivery.PENDING else None,
        "ended_at": event.ended_at,
        "reason": log.get("reason") if event.status is Delivery.DEAD_LETTER else None,
        "log": attempts_in(event.error),
        "response": log.get("response"),
    }


def whole_delivery(event: OutboxEvent) -> dict[str, Any]:
    """Return a delivery and its event's body as a JSON value."""
    return {**delivery_body(event), "body": parse_json(event.body)}


def health_body(breaker: Breaker) -> dict[str, Any]:
    """Return a circuit breaker's state as a JSON value."""
    return {
        "state": breaker.state.value,
        "failures": breaker.failures,
        "failing_since": breaker.failing_since,
        "next_probe_at": breaker.probe_at or None,
    }


def destination_body(where: Destination, breaker: Breaker) -> dict[str, Any]:
    """Return a destination with its health as a JSON value."""
    return {"requester_id": where.requester_id, "destination": where.name, "health": health_body(breaker)}


log = logging.getLogger("callsheet.audit")
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
    events = await state_of(request).engine.store.outbox_find(
        job_id=job_id, status=Delivery(status) if status else None, limit=limit + 1, where=where
    )
    last = events[limit - 1].event_id if len(events) > limit else None
    return JsonAnswer({"deliveries": [delivery_body(event) for event in events[:limit]], "next": last})


@router.get(
    "/deliveries/{event_id}",
    summary="Read a delivery",
    response_model=WholeDelivery,
    responses=problems.responses(*ALWAYS, "delivery_not_found"),
)
async def get_delivery(request: Request, event_id: EventId, who: Reader) -> JsonAnswer:
    """Read one delivery with its body and the log of its attempts."""
    store = state_of(request).engine.store
    return JsonAnswer(whole_delivery(await find_one(store, _check_id(event_id), who.sees)))


@router.post(
    "/deliveries/{event_id}/replay",
    status_code=202,
    summary="Send an event again",
    response_model=WholeDelivery,
    responses=problems.responses(*ALWAYS, "delivery_not_found"),
)
async def replay_delivery(request: Request, event_id: EventId, who: Writer) -> JsonAnswer:
    """Send an event again with the same id and body, and fresh attempts. A waiting event is left unchanged."""
    event = await replay_one(state_of(request).engine.store, _check_id(event_id), who.sees)
    log.info("key %s replays event %s", who.key_id, event.event_id)
    await act(request, "webhook.replayed", target=event.event_id, requester_id=event.requester_id)
    return JsonAnswer(whole_delivery(event), 202)


@router.post(
    "/deliveries/replay",
    status_code=202,
    summary="Send many events again",
    response_model=ReplayedBody,
    openapi_extra=request_body(ReplaySelection, is_required=False),
    responses=problems.responses(*ALWAYS, *BODY),
)
async def replay_deliveries(request: Request, who: Writer) -> JsonAnswer:
    """Send events again, oldest first, `rate` per second. Waiting events are left unchanged, so repeating is safe."""
    body = await read(request, ReplaySelection) if await request.body() else ReplaySelection()
    selection = Selection(
        who.sees,
        Delivery(body.status),
        body.job_id,
        body.endpoint,
        body.created_from,
        body.created_to,
        rate_per_s=body.rate,
        limit=body.limit,
    )
    result = await replay_many(state_of(request).engine.store, selection)
    log.info("key %s replays %d events", who.key_id, result.replayed)
    await act(request, "webhook.replayed", target="many", replayed=result.replayed)
    return JsonAnswer(result._asdict(), 202)


@router.get(
    "/destinations",
    summary="List destinations in trouble",
    response_model=DestinationList,
    responses=problems.responses(*ALWAYS),
)
async def list_destinations(request: Request, who: Reader) -> JsonAnswer:
    """List failing destinations with the time of their next probe. Events for these wait without spending attempts."""
    breakers = await stored_breakers(state_of(request).engine.store, who.sees)
    return JsonAnswer({"destinations": [destination_body(where, breaker) for where, breaker in breakers.items()]})


def _check_id(event_id: str) -> str:
    if not IS_FIELD(event_id):
        raise DeliveryNotFound("no such delivery")
    return event_id
