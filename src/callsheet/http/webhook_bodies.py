"""Request and response bodies of `/v1/webhooks`: deliveries, endpoints and destinations as JSON."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from callsheet.kernel.job import Delivery, OutboxEvent
from callsheet.outbox.breaker import Breaker
from callsheet.outbox.decide import attempts_in, log_of
from callsheet.outbox.endpoints import Endpoint
from callsheet.outbox.health import Destination

from .json_text import parsed

NO_NUL = r"^[^\x00]*$"  # PostgreSQL cannot store NUL in text
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


class SecretBody(BaseModel):
    """A secret without its text; `expires_at` null: the current secret."""

    secret_id: str
    created_at: Ms
    expires_at: Ms | None


class HealthBody(BaseModel):
    """The health of a destination."""

    state: Literal["closed", "open", "half_open"]
    failures: int
    failing_since: Ms | None
    next_probe_at: Ms | None


class EndpointBody(BaseModel):
    """A webhook endpoint. `secret` is present only in the response that created the secret."""

    endpoint_id: str
    requester_id: str
    url: str
    description: str
    created_at: Ms
    disabled_at: Ms | None
    disabled_reason: str
    secrets: list[SecretBody]
    health: HealthBody
    secret: str | None = None


class EndpointList(BaseModel):
    """All endpoints of the key's requester."""

    endpoints: list[EndpointBody]


class NewEndpoint(BaseModel):
    """A webhook endpoint to create."""

    model_config = ConfigDict(extra="forbid")
    url: Text = Field(examples=["https://hooks.example.org/callsheet"])
    description: str = Field(default="", max_length=255)


class ChangedEndpoint(BaseModel):
    """Fields of an endpoint to change; null fields stay unchanged."""

    model_config = ConfigDict(extra="forbid")
    url: Text | None = None
    description: str | None = Field(default=None, max_length=255)


class Rotation(BaseModel):
    """How many seconds the old secret keeps signing beside the new one."""

    model_config = ConfigDict(extra="forbid")
    overlap_s: int = Field(default=86_400, ge=0, le=86_400)


class Enabling(BaseModel):
    """Whether to send events that arrived while the endpoint was disabled, and how many per second."""

    model_config = ConfigDict(extra="forbid")
    replay: bool = True
    rate: float = Field(default=20.0, gt=0, le=1_000, description="So many in a second.")


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
    return {**delivery_body(event), "body": parsed(event.body)}


def health_body(breaker: Breaker) -> dict[str, Any]:
    """Return a circuit breaker's state as a JSON value."""
    return {
        "state": breaker.state.value,
        "failures": breaker.failures,
        "failing_since": breaker.failing_since,
        "next_probe_at": breaker.probe_at or None,
    }


def endpoint_body(endpoint: Endpoint, breaker: Breaker, secret: str | None = None) -> dict[str, Any]:
    """Return an endpoint as a JSON value, with the text of its secret if `secret` was just created."""
    body = endpoint._asdict()
    del body["version"]
    body["secrets"] = [
        {"secret_id": kept.secret_id, "created_at": kept.created_at, "expires_at": kept.expires_at}
        for kept in endpoint.secrets
    ]
    return {**body, "health": health_body(breaker), **({"secret": secret} if secret is not None else {})}


def destination_body(where: Destination, breaker: Breaker) -> dict[str, Any]:
    """Return a destination with its health as a JSON value."""
    return {"requester_id": where.requester_id, "destination": where.name, "health": health_body(breaker)}
