"""The bodies of `/v1/webhooks`: deliveries, endpoints and destinations as JSON."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from callsheet.kernel.job import Delivery, OutboxEvent
from callsheet.outbox.breaker import Breaker
from callsheet.outbox.decide import attempts_in, log_of
from callsheet.outbox.endpoints import Endpoint
from callsheet.outbox.health import Destination

from .json_text import parsed

NO_NUL = r"^[^\x00]*$"  # PostgreSQL keeps none
MAX_MS = 10**15
Ms = Annotated[int, Field(ge=0, le=MAX_MS, description="Milliseconds since the epoch.")]
Word = Literal["pending", "delivering", "delivered", "dead_letter"]
Text = Annotated[str, Field(max_length=2_048, pattern=NO_NUL)]


class DeliveryBody(BaseModel):
    """An event on its way. `log` has its last attempts, `response` up to 1 KiB of the last answer."""

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
    """A page; `next` is the cursor of the next one, null at the end."""

    deliveries: list[DeliveryBody]
    next: str | None


class WholeDelivery(DeliveryBody):
    """With the body that is sent, as JSON."""

    body: Any


class ReplaySelection(BaseModel):
    """Which ended events go out once more; without `created_from` and `created_to`, of any time."""

    model_config = ConfigDict(extra="forbid")
    status: Literal["dead_letter", "delivered"] = "dead_letter"
    job_id: Text | None = None
    endpoint: Text | None = None
    created_from: Ms | None = None
    created_to: Ms | None = None
    rate: float = Field(default=20.0, gt=0, le=1_000, description="So many in a second.")
    limit: int = Field(default=10_000, ge=1, le=10_000)


class ReplayedBody(BaseModel):
    """How many wait again; `more`: there are further ones, ask again."""

    replayed: int
    more: bool


class SecretBody(BaseModel):
    """A secret without its text; `expires_at` null: it is the present one."""

    secret_id: str
    created_at: Ms
    expires_at: Ms | None


class HealthBody(BaseModel):
    """How a destination does."""

    state: Literal["closed", "open", "half_open"]
    failures: int
    failing_since: Ms | None
    next_probe_at: Ms | None


class EndpointBody(BaseModel):
    """An endpoint. `secret` is shown when it was just made, and never again."""

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
    """Where events are to go."""

    model_config = ConfigDict(extra="forbid")
    url: Text = Field(examples=["https://hooks.example.org/callsheet"])
    description: str = Field(default="", max_length=255)


class ChangedEndpoint(BaseModel):
    """What is to change of an endpoint."""

    model_config = ConfigDict(extra="forbid")
    url: Text | None = None
    description: str | None = Field(default=None, max_length=255)


class Rotation(BaseModel):
    """How long the old secret signs beside the new one."""

    model_config = ConfigDict(extra="forbid")
    overlap_s: int = Field(default=86_400, ge=0, le=86_400)


class Enabling(BaseModel):
    """Whether what came while it was disabled goes out now, and how fast."""

    model_config = ConfigDict(extra="forbid")
    replay: bool = True
    rate: float = Field(default=20.0, gt=0, le=1_000, description="So many in a second.")


class DestinationBody(BaseModel):
    """A destination that is in trouble."""

    requester_id: str
    destination: str
    health: HealthBody


class DestinationList(BaseModel):
    """Those in trouble; who is not here is well."""

    destinations: list[DestinationBody]


def delivery_body(event: OutboxEvent) -> dict[str, Any]:
    """An event as JSON."""
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
    """With its body."""
    return {**delivery_body(event), "body": parsed(event.body)}


def health_body(breaker: Breaker) -> dict[str, Any]:
    """A breaker as JSON."""
    return {
        "state": breaker.state.value,
        "failures": breaker.failures,
        "failing_since": breaker.failing_since,
        "next_probe_at": breaker.probe_at or None,
    }


def endpoint_body(endpoint: Endpoint, breaker: Breaker, secret: str | None = None) -> dict[str, Any]:
    """An endpoint as JSON, with its secret where it was just made."""
    body = endpoint._asdict()
    del body["version"]
    body["secrets"] = [
        {"secret_id": kept.secret_id, "created_at": kept.created_at, "expires_at": kept.expires_at}
        for kept in endpoint.secrets
    ]
    return {**body, "health": health_body(breaker), **({"secret": secret} if secret is not None else {})}


def destination_body(where: Destination, breaker: Breaker) -> dict[str, Any]:
    """A destination as JSON."""
    return {"requester_id": where.requester_id, "destination": where.name, "health": health_body(breaker)}
