"""`/v1/workers`: operators list, invite, drain and revoke workers."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from callsheet.http import problems
from callsheet.http.audit import act
from callsheet.http.json_bodies import JsonAnswer, read, request_body
from callsheet.http.parameters import ALWAYS, BODY, Admin, Moment
from callsheet.http.problems import Problem
from callsheet.http.state import state_of
from callsheet.http.worker_registry import LIFE_S, Worker

STRICT = ConfigDict(strict=True, extra="forbid")
MAX_QUEUES = 50
MONTH_S = 30 * 86_400
WorkerId = Annotated[str, Path(description="The worker's id.", examples=["gpu1-7Tq2bXc9Lm"], max_length=100)]
EnrolmentId = Annotated[str, Path(description="The invitation's id.", examples=["7Tq2bXc9Lm"], max_length=100)]
Queue = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f]+$")]
Tenant = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^\x00]+$")]
router = APIRouter(prefix="/v1/workers", tags=["workers"])


class EnrolmentBody(BaseModel):
    """The queues and tenants of new workers, and how long their enrolment token is valid."""

    model_config = STRICT
    queues: Annotated[list[Queue], Field(min_length=1, max_length=MAX_QUEUES)] | None = Field(
        default=None, description="Queues that it may claim from; all unless given."
    )
    tenants: Annotated[list[Tenant], Field(min_length=1, max_length=1000)] | None = Field(
        default=None, description="Requesters whose jobs it may have; all unless given."
    )
    ttl_s: int = Field(default=3600, ge=1, le=MONTH_S, description="How long the enrolment token is good.")
    uses: int = Field(default=1, ge=1, le=1000, description="How many workers may enrol with it.")
    token_life_s: int = Field(default=LIFE_S, ge=10, le=MONTH_S, description="How long each worker token is good.")


class Invited(BaseModel):
    """A new enrolment token. No later answer shows the token."""

    enrolment_token: str
    enrolment_id: str
    queues: list[str] | None
    tenants: list[str] | None
    uses_left: int
    expires_at: Moment


class EnrolmentShown(BaseModel):
    """An enrolment; its token is not shown again. Null `queues` or `tenants` mean all."""

    enrolment_id: str
    queues: list[str] | None
    tenants: list[str] | None
    uses_left: int
    token_life_s: int
    created_at: Moment
    expires_at: Moment


class EnrolmentList(BaseModel):
    """The enrolments that a worker can still use, oldest first."""

    enrolments: list[EnrolmentShown]


class WorkerBody(BaseModel):
    """A worker. Null `queues` or `tenants` mean all; `enrolled` is false for a worker with a plain API key."""

    worker_id: str
    name: str
    enrolled: bool
    state: str = Field(description="active, draining, revoked, expired or unenrolled")
    queues: list[str] | None
    tenants: list[str] | None
    labels: list[str]
    version: str
    protocol: int
    running: int = Field(description="Jobs that it had when it was last seen.")
    draining: bool
    created_at: Moment | None
    last_seen_at: Moment | None
    token_expires_at: Moment | None
    revoked_at: Moment | None
    token_reused_at: Moment | None = Field(
        default=None, description="When a token was used after it had been rotated, which revoked the worker."
    )


class WorkerList(BaseModel):
    """All workers seen within the last week."""

    workers: list[WorkerBody]


class DrainBody(BaseModel):
    """Start or stop draining a worker."""

    model_config = STRICT
    drain: bool = True


def worker_body(worker: Worker, now: int) -> dict[str, Any]:
    """Return a worker as the JSON of an answer."""
    body = worker._asdict()
    del body["token_life_s"], body["draining_at"]
    return {
        **body,
        "enrolled": worker.created_at is not None,
        "state": worker_state(worker, now),
        "labels": list(worker.labels),
        "draining": worker.draining_at is not None,
    }


def worker_state(worker: Worker, now: int) -> str:
    """Return the state of a worker in one word."""
    if worker.created_at is None:
        return "unenrolled"
    if worker.revoked_at is not None:
        return "revoked"
    if (worker.token_expires_at or 0) <= now:
        return "expired"
    return "active" if worker.draining_at is None else "draining"


@router.get("", summary="List workers", response_model=WorkerList, responses=problems.responses(*ALWAYS))
async def list_workers(request: Request, who: Admin) -> JsonAnswer:  # noqa: ARG001 - asked for its scope
    """List workers seen within the last week, enrolled or not, with their labels, version and running jobs."""
    state = state_of(request)
    now = await state.engine.store.now()
    return JsonAnswer({"workers": [worker_body(worker, now) for worker in await state.workers.list()]})


@router.post(
    "/enrolments",
    status_code=201,
    summary="Invite a worker",
    response_model=Invited,
    openapi_extra=request_body(EnrolmentBody, is_required=False),
    responses=problems.responses(*ALWAYS, *BODY),
)
async def invite(request: Request, who: Admin) -> JsonAnswer:  # noqa: ARG001 - asked for its scope
    """Create an enrolment token for one worker, or for `uses` workers. No later answer shows the token."""
    body = await read(request, EnrolmentBody) if await request.body() else EnrolmentBody()
    text, enrolment = await state_of(request).workers.invite(**body.model_dump())
    await act(request, "enrolment.created", target=enrolment.enrolment_id, **_bounds(body), uses=body.uses)
    fields = {name: value for name, value in enrolment._asdict().items() if name in Invited.model_fields}
    return JsonAnswer({"enrolment_token": text, **fields}, 201)


@router.get(
    "/enrolments",
    summary="List invitations",
    response_model=EnrolmentList,
    responses=problems.responses(*ALWAYS),
)
async def list_enrolments(request: Request, who: Admin) -> JsonAnswer:  # noqa: ARG001 - asked for its scope
    """List valid enrolments: queues, tenants, uses left, expiry. The server keeps only a hash of each token."""
    enrolments = await state_of(request).workers.enrolments()
    return JsonAnswer({"enrolments": [right._asdict() for right in enrolments]})


@router.delete(
    "/enrolments/{enrolment_id}",
    status_code=204,
    summary="Take an invitation back",
    response_class=Response,
    responses=problems.responses(*ALWAYS, "not_found"),
)
async def withdraw(request: Request, enrolment_id: EnrolmentId, who: Admin) -> Response:  # noqa: ARG001
    """Withdraw an enrolment: new workers cannot enrol with its token; enrolled workers stay."""
    if not await state_of(request).workers.withdraw(enrolment_id):
        raise Problem("not_found", "no such invitation: it is used up and gone, too old, or was taken back")
    await act(request, "enrolment.withdrawn", target=enrolment_id)
    return Response(status_code=204)


def _bounds(body: EnrolmentBody) -> dict[str, str]:
    """Return the enrolment's queues and tenants for the audit log."""
    return {"queues": " ".join(body.queues or ["all"]), "tenants": " ".join(body.tenants or ["all"])}


@router.delete(
    "/{worker_id}",
    summary="Revoke a worker",
    response_model=WorkerBody,
    responses=problems.responses(*ALWAYS, "not_found"),
)
async def revoke(request: Request, worker_id: WorkerId, who: Admin) -> JsonAnswer:  # noqa: ARG001
    """Revoke an enrolled worker for good: its next request is refused, and its leases run out."""
    state = state_of(request)
    worker = await state.workers.revoke(worker_id)
    await act(request, "worker.revoked", target=worker_id)
    return JsonAnswer(worker_body(worker, await state.engine.store.now()))


@router.post(
    "/{worker_id}/drain",
    summary="Drain a worker",
    response_model=WorkerBody,
    openapi_extra=request_body(DrainBody, is_required=False),
    responses=problems.responses(*ALWAYS, *BODY, "not_found"),
)
async def drain(request: Request, worker_id: WorkerId, who: Admin) -> JsonAnswer:  # noqa: ARG001
    """Let a worker finish its jobs without claiming more; `{"drain": false}` stops draining."""
    body = await read(request, DrainBody) if await request.body() else DrainBody()
    state = state_of(request)
    worker = await state.workers.drain(worker_id, drain=body.drain)
    await act(request, "worker.drained" if body.drain else "worker.resumed", target=worker_id)
    return JsonAnswer(worker_body(worker, await state.engine.store.now()))
