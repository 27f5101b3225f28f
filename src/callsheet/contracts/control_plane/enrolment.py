"""`/internal/worker/enroll` and `/token`: a worker gets its identity token and rotates it before it expires."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from callsheet.http import problems
from callsheet.http.audit import act
from callsheet.http.auth import check
from callsheet.http.json_bodies import JsonAnswer, read, request_body
from callsheet.http.problems import Problem
from callsheet.http.routing import RawRoute
from callsheet.http.state import state_of
from callsheet.http.worker_registry import Token

from . import versions
from .models import Label

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$"
BODY = ("validation_failed", "unsupported_media_type", "body_too_large")
router = APIRouter(prefix="/internal/worker", tags=["workers"], route_class=RawRoute)


class EnrollBody(BaseModel):
    """A new worker enrols with an enrolment token."""

    model_config = ConfigDict(strict=True, extra="ignore")
    enrolment_token: str = Field(min_length=1, max_length=200)
    worker_name: str = Field(pattern=NAME, description="What people call it; its id is made from this.")
    labels: list[Label] = Field(default=[], max_length=50, description="What this worker can do, such as gpu.")
    version: str = Field(default="", max_length=100, pattern=r"^[^\x00-\x1f]*$")
    protocol: int | None = Field(
        default=None, ge=0, le=999_999, description="Which protocol it speaks; 1 unless given."
    )


class WorkerToken(BaseModel):
    """A worker's identity. Send the token as `Authorization: Bearer …`. No later answer shows this token."""

    worker_id: str
    worker_token: str
    expires_at: int = Field(description="Milliseconds since the epoch, by the store's clock.")
    expires_in_seconds: float
    rotate_after_seconds: float
    queues: list[str] | None
    tenants: list[str] | None
    protocol: int
    min_version: int
    max_version: int


@router.post(
    "/enroll",
    status_code=201,
    summary="Enrol a worker",
    response_model=WorkerToken,
    openapi_extra=request_body(EnrollBody),
    responses=problems.responses(
        *BODY,
        "bad_request",
        "unauthorized",
        "worker_revoked",
        "store_unavailable",
        "upgrade_required",
        "request_timeout",
        "too_many_requests",
    ),
)
async def enroll(request: Request) -> JsonAnswer:
    """Use an enrolment token and get a worker token. The worker token is short-lived: rotate it in time."""
    state = state_of(request)
    body = await read(request, EnrollBody)
    protocol = versions.check(versions.protocol_of(request, body.protocol))  # before the token is used up
    with state.failed_sign_ins.count_failures(state.proxies.client_of(request), is_guessable=False):
        token = await state.workers.enroll(
            body.enrolment_token, body.worker_name, labels=body.labels, version=body.version, protocol=protocol
        )
    await act(request, "worker.enrolled", target=token.worker.worker_id, name=body.worker_name)
    return JsonAnswer(_token_body(token), 201)


@router.post(
    "/token",
    summary="Rotate a worker's token",
    response_model=WorkerToken,
    responses=problems.responses(
        "unauthorized", "worker_revoked", "forbidden", "too_many_requests", "store_unavailable"
    ),
)
async def rotate(request: Request) -> JsonAnswer:
    """Get a new token. The old token stays valid until the new one is used, for two minutes at most.

    An old token used after that counts as stolen: the worker is revoked.
    """
    who = await check(request, "worker")
    if who.worker_id is None:
        raise Problem("forbidden", "only the token of an enrolled worker can be rotated; an API key stays as it is")
    return JsonAnswer(_token_body(await state_of(request).workers.rotate(who.worker_id)))


def _token_body(token: Token) -> dict[str, Any]:
    worker = token.worker
    return {
        "worker_id": worker.worker_id,
        "worker_token": token.text,
        "expires_at": worker.token_expires_at,
        "expires_in_seconds": float(worker.token_life_s),
        "rotate_after_seconds": token.rotate_after_s,
        "queues": worker.queues,
        "tenants": worker.tenants,
        "protocol": worker.protocol,
        "min_version": versions.OLDEST,
        "max_version": versions.CURRENT,
    }
