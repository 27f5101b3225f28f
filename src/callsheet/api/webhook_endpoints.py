"""`/v1/webhooks/endpoints` and `/v1/webhooks/secret`: URLs that receive events, and secrets that sign events."""

from __future__ import annotations

import logging
from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from callsheet.http import problems
from callsheet.http.audit import act
from callsheet.http.json_bodies import JsonAnswer, read, request_body
from callsheet.http.parameters import ALWAYS, BODY, Reader, Writer
from callsheet.http.problems import Problem
from callsheet.http.state import state_of
from callsheet.outbox.breaker import Breaker, Destination, stored_breakers
from callsheet.outbox.endpoints import Endpoint, Endpoints
from callsheet.outbox.replay import Selection, replay_many

from .webhook_deliveries import HealthBody, Ms, Text, health_body

log = logging.getLogger("callsheet.audit")
EndpointId = Annotated[str, Path(description="The endpoint's id.", examples=["whe_5f0c2a9b7d1e4c3a8b6d"])]
ONE = (*ALWAYS, "endpoint_not_found", "webhooks_off")
CHANGE = (*ONE, *BODY, "document_conflict")
SEALS = ("no_keyring", "key_service_unavailable")
router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"])


class SecretBody(BaseModel):
    """A secret without its text; `expires_at` null: the current secret."""

    secret_id: str
    created_at: Ms
    expires_at: Ms | None


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


def endpoint_body(endpoint: Endpoint, breaker: Breaker, secret: str | None = None) -> dict[str, Any]:
    """Return an endpoint as a JSON value, with the text of its secret if `secret` was just created."""
    body = endpoint._asdict()
    del body["version"]
    body["secrets"] = [
        {"secret_id": one.secret_id, "created_at": one.created_at, "expires_at": one.expires_at}
        for one in endpoint.secrets
    ]
    return {**body, "health": health_body(breaker), **({"secret": secret} if secret is not None else {})}


@router.post(
    "/endpoints",
    status_code=201,
    summary="Make an endpoint",
    response_model=EndpointBody,
    openapi_extra=request_body(NewEndpoint),
    responses=problems.responses(*ALWAYS, *BODY, *SEALS, "webhooks_off", "invalid_target", "too_many_endpoints"),
)
async def create_endpoint(request: Request, who: Writer) -> JsonAnswer:
    """Create a webhook endpoint. Only this response contains the text of its secret."""
    body = await read(request, NewEndpoint)
    endpoint, secret = await _endpoints(request).create(who.requester_id, body.url, body.description)
    log.info("key %s makes endpoint %s", who.key_id, endpoint.endpoint_id)
    await _act(request, "created", endpoint)
    return JsonAnswer(endpoint_body(endpoint, Breaker(), secret), 201, {"Cache-Control": "no-store"})


@router.get(
    "/endpoints",
    summary="List endpoints",
    response_model=EndpointList,
    responses=problems.responses(*ALWAYS, "webhooks_off"),
)
async def list_endpoints(request: Request, who: Reader) -> JsonAnswer:
    """List the requester's endpoints with their health, without the text of secrets."""
    endpoints = await _endpoints(request).list(who.sees)
    health = await stored_breakers(state_of(request).engine.store, who.sees)
    bodies = [endpoint_body(e, health.get(_where(e), Breaker())) for e in endpoints]
    return JsonAnswer({"endpoints": bodies})


@router.get(
    "/endpoints/{endpoint_id}",
    summary="Read an endpoint",
    response_model=EndpointBody,
    responses=problems.responses(*ONE),
)
async def get_endpoint(request: Request, endpoint_id: EndpointId, who: Reader) -> JsonAnswer:
    """Read one endpoint, without the text of its secrets."""
    return await _answer(request, await _endpoints(request).get(endpoint_id, who.sees))


@router.patch(
    "/endpoints/{endpoint_id}",
    summary="Change an endpoint",
    response_model=EndpointBody,
    openapi_extra=request_body(ChangedEndpoint),
    responses=problems.responses(*CHANGE, "invalid_target"),
)
async def change_endpoint(request: Request, endpoint_id: EndpointId, who: Writer) -> JsonAnswer:
    """Change the endpoint's URL or description; the secret stays unchanged."""
    body = await read(request, ChangedEndpoint)
    endpoint = await _endpoints(request).change(endpoint_id, who.sees, url=body.url, description=body.description)
    log.info("key %s changes endpoint %s", who.key_id, endpoint.endpoint_id)
    await _act(request, "changed", endpoint)
    return await _answer(request, endpoint)


@router.delete(
    "/endpoints/{endpoint_id}",
    status_code=204,
    summary="Delete an endpoint",
    responses=problems.responses(*ONE),
)
async def delete_endpoint(request: Request, endpoint_id: EndpointId, who: Writer) -> Response:
    """Delete the endpoint and its secrets. Events waiting for the endpoint become dead letters."""
    endpoint = await _endpoints(request).get(endpoint_id, who.sees)
    await _endpoints(request).delete(endpoint_id, who.sees)
    log.info("key %s deletes endpoint %s", who.key_id, endpoint_id)
    await _act(request, "deleted", endpoint)
    return Response(status_code=204)


@router.post(
    "/endpoints/{endpoint_id}/rotate",
    summary="Give an endpoint a new secret",
    response_model=EndpointBody,
    openapi_extra=request_body(Rotation, is_required=False),
    responses=problems.responses(*CHANGE, *SEALS),
)
async def rotate_secret(request: Request, endpoint_id: EndpointId, who: Writer) -> JsonAnswer:
    """Create a new secret, whose text only this response contains.

    Old and new secret both sign for `overlap_s` seconds; 0 ends the old secret immediately.
    """
    overlap_ms = await _overlap_ms(request)
    endpoint, secret = await _endpoints(request).rotate(endpoint_id, who.sees, overlap_ms=overlap_ms)
    log.info("key %s rotates the secret of endpoint %s", who.key_id, endpoint.endpoint_id)
    await _act_on_secret(request, endpoint)
    return await _answer(request, endpoint, secret)


@router.post(
    "/endpoints/{endpoint_id}/disable",
    summary="Disable an endpoint",
    response_model=EndpointBody,
    responses=problems.responses(*ONE, "document_conflict"),
)
async def disable_endpoint(request: Request, endpoint_id: EndpointId, who: Writer) -> JsonAnswer:
    """Disable the endpoint: new events for the endpoint become dead letters."""
    endpoint = await _endpoints(request).disable(endpoint_id, who.sees, "asked")
    log.info("key %s disables endpoint %s", who.key_id, endpoint.endpoint_id)
    await _act(request, "changed", endpoint)
    return await _answer(request, endpoint)


@router.post(
    "/endpoints/{endpoint_id}/enable",
    summary="Enable an endpoint",
    response_model=EndpointBody,
    openapi_extra=request_body(Enabling, is_required=False),
    responses=problems.responses(*CHANGE),
)
async def enable_endpoint(request: Request, endpoint_id: EndpointId, who: Writer) -> JsonAnswer:
    """Enable the endpoint. Events that arrived while disabled are sent, `rate` per second, unless `replay` is false."""
    body = await read(request, Enabling) if await request.body() else Enabling()
    endpoint = await _endpoints(request).enable(endpoint_id, who.sees)
    log.info("key %s enables endpoint %s", who.key_id, endpoint.endpoint_id)
    await _act(request, "changed", endpoint)
    if body.replay:
        selection = Selection(
            endpoint.requester_id, endpoint=endpoint.endpoint_id, reason="endpoint_disabled", rate_per_s=body.rate
        )
        await replay_many(state_of(request).engine.store, selection)
    return await _answer(request, endpoint)


@router.get(
    "/secret",
    summary="Read about your own secret",
    response_model=EndpointBody,
    responses=problems.responses(*ONE),
)
async def get_secret(request: Request, who: Reader) -> JsonAnswer:
    """Read about the secret that signs events for URLs given in jobs. The secret's text is not shown."""
    return await _answer(request, await _endpoints(request).own(who.requester_id))


@router.post(
    "/secret",
    summary="Make or rotate your own secret",
    response_model=EndpointBody,
    openapi_extra=request_body(Rotation, is_required=False),
    responses=problems.responses(*ALWAYS, *BODY, *SEALS, "webhooks_off", "document_conflict"),
)
async def new_secret(request: Request, who: Writer) -> JsonAnswer:
    """Create or rotate the secret that signs events for URLs given in jobs.

    Only this response contains the secret's text.
    """
    overlap_ms = await _overlap_ms(request)
    endpoint, secret = await _endpoints(request).new_own_secret(who.requester_id, overlap_ms=overlap_ms)
    log.info("key %s makes its requester's secret anew", who.key_id)
    await _act_on_secret(request, endpoint)
    return await _answer(request, endpoint, secret)


def _endpoints(request: Request) -> Endpoints:
    endpoints = state_of(request).endpoints
    if endpoints is None:
        raise Problem("webhooks_off", "this server keeps no webhook endpoints; ask its operator for --webhooks on")
    return endpoints


async def _act(request: Request, what: str, endpoint: Endpoint) -> None:
    is_disabled = endpoint.disabled_at is not None
    subject = {"target": endpoint.endpoint_id, "requester_id": endpoint.requester_id}
    await act(request, f"webhook.endpoint_{what}", **subject, disabled=is_disabled)


async def _act_on_secret(request: Request, endpoint: Endpoint) -> None:
    subject = {"target": endpoint.endpoint_id, "requester_id": endpoint.requester_id}
    await act(request, "webhook.secret_rotated", **subject)


async def _overlap_ms(request: Request) -> int:
    return (await read(request, Rotation) if await request.body() else Rotation()).overlap_s * 1000


async def _answer(request: Request, endpoint: Endpoint, secret: str | None = None) -> JsonAnswer:
    health = await stored_breakers(state_of(request).engine.store, endpoint.requester_id)
    body = endpoint_body(endpoint, health.get(_where(endpoint), Breaker()), secret)
    return JsonAnswer(body, headers={"Cache-Control": "no-store"} if secret else None)


def _where(endpoint: Endpoint) -> Destination:
    return Destination(endpoint.requester_id, endpoint.endpoint_id)
