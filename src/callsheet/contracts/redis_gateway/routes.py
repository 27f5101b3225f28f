"""`/v1/jobs`: create, read, list and cancel jobs. Event streams are in `streams`."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from callsheet.api.creation import Creation
from callsheet.api.new_jobs import CreateJob
from callsheet.engine import Engine
from callsheet.http import idempotency, problems
from callsheet.http.auth import check
from callsheet.http.json_bodies import JsonAnswer, read, request_body
from callsheet.http.parameters import ALWAYS, CURSOR, LATEST_MS, JobId, Reader, Writer
from callsheet.http.routing import RawRoute
from callsheet.http.state import state_of
from callsheet.kernel.contracts import REDIS_GATEWAY
from callsheet.kernel.job import Idempotency
from callsheet.store.protocol import JobPage, JobQuery

from .models import (
    STATUSES,
    CancelRequest,
    JobBody,
    JobList,
    Receipt,
    Word,
    job_body,
    list_entry,
    receipt,
)

NO_NUL = r"^[^\x00]*$"  # PostgreSQL keeps none
LOOK = 20_000  # jobs that one store query may scan, so that other readers get their turn
PATIENCE_S = 0.25  # seconds for filling a page with rare matches; the next page continues
TEXT = "Stands in the id, task, correlation id, payload or error; in any case of letters."
router = APIRouter(tags=["jobs"])
direct = APIRouter(tags=["jobs"], route_class=RawRoute)


@direct.post(
    "/v1/jobs",
    status_code=202,
    summary="Create a job",
    response_model=Receipt,
    openapi_extra={
        **request_body(CreateJob),
        "parameters": [
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "schema": {"type": "string", "pattern": "^[!-~]{1,255}$"},
                "description": "The same request with the same key answers with the first job.",
            }
        ],
    },
    responses=problems.responses(
        *ALWAYS,
        "bad_request",
        "idempotency_conflict",
        "payload_too_large",
        "body_too_large",
        "unsupported_media_type",
        "validation_failed",
        "queue_full",
        "task_reserved",
        "unknown_task",
        "invalid_payload",
        "dependency_not_found",
    ),
)
async def create_job(request: Request) -> Response:
    """Create a job; the answer is sent once the job is stored durably. Follow the job's events at `links.events`."""
    state, who = state_of(request), await check(request, "jobs:write")
    body = await read(request, CreateJob)
    new = await Creation(state, who, request.scope["callsheet.request_id"]).new_job(body)
    ttl_s = new.ttl_s or state.job_ttl_s
    answer = receipt(new.job_id, body.task, ttl_s)
    if (key := idempotency.key_of(request)) is not None:
        same = idempotency.request_hash(request, _identity(body))
        new = new._replace(idempotency=Idempotency(key, same, answer, max(ttl_s, Idempotency("", "").ttl_s)))
    result = await state.batcher.enqueue(new)
    headers = {"Location": f"/v1/jobs/{result.job_id}"}
    if not result.created:
        headers |= {"Idempotency-Replayed": "true"} if key is not None else {}
        if not result.response:  # the job of a unique key, or the key of another gateway, which stores no answer
            job = await state.engine.get(result.job_id, requester_id=who.sees)
            answer = receipt(job.job_id, job.kind, job.ttl_s or ttl_s, REDIS_GATEWAY.words[job.status], created=False)
    return Response(result.response or answer, 202, headers, media_type="application/json")


def _identity(body: CreateJob) -> dict[str, Any]:
    """Return what makes two requests the same: as hashed since the first version, and every option that was given."""
    return {"ttl_s": body.ttl_s, **body.model_dump(exclude_defaults=True), "payload": body.payload}


@router.get(
    "/v1/jobs/{job_id}",
    summary="Read a job",
    response_model=JobBody,
    responses=problems.responses(*ALWAYS, "job_not_found"),
)
async def get_job(request: Request, job_id: JobId, who: Reader) -> Response:
    """Read the job's present state, with payload, result and error as JSON values."""
    return JsonAnswer(job_body(await state_of(request).engine.get(job_id, requester_id=who.sees)))


@router.get(
    "/v1/jobs",
    summary="List jobs",
    response_model=JobList,
    responses=problems.responses(*ALWAYS, "validation_failed"),
)
async def list_jobs(  # noqa: PLR0913, PLR0917 - each is a filter
    request: Request,
    who: Reader,
    status: Annotated[list[Word] | None, Query(description="Only jobs in this status. May be given again.")] = None,
    task: Annotated[str | None, Query(max_length=255, pattern=NO_NUL)] = None,
    queue: Annotated[str | None, Query(max_length=255, pattern=NO_NUL)] = None,
    contract: Annotated[str | None, Query(max_length=255, pattern=NO_NUL)] = None,
    requester: Annotated[str | None, Query(max_length=255, pattern=NO_NUL, description="For admins.")] = None,
    created_from: Annotated[int | None, Query(ge=0, le=LATEST_MS, description="Milliseconds; with it.")] = None,
    created_to: Annotated[int | None, Query(ge=0, le=LATEST_MS, description="Without it.")] = None,
    text: Annotated[str | None, Query(max_length=200, pattern=NO_NUL, description=TEXT)] = None,
    brief: Annotated[bool, Query(description="Leave payloads and results out, which `partial` tells.")] = False,  # noqa: FBT002
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: Annotated[str | None, Query(pattern=CURSOR, description="`next` of the page before.")] = None,
) -> Response:
    """List jobs, newest first. New jobs do not shift pages. Pages may be short: continue while `next` is set."""
    statuses = tuple(s for word in status or () for s in STATUSES[word])
    if who.sees is not None and requester not in (None, who.sees):
        return JsonAnswer({"jobs": [], "next": None})  # another requester's jobs are hidden
    mine = requester if who.sees is None else who.sees
    query = JobQuery(mine, statuses, task, queue, contract, created_from, created_to, limit, cursor, text, LOOK)
    page = await _page(state_of(request).engine, query)
    return JsonAnswer({"jobs": [list_entry(job, brief=brief) for job in page.jobs], "next": page.cursor})


async def _page(engine: Engine, query: JobQuery) -> JobPage:
    """Return a full page or the last page; after PATIENCE_S, return the jobs read so far."""
    until = time.monotonic() + PATIENCE_S
    page = await engine.find(query)
    while page.cursor and len(page.jobs) < query.limit and time.monotonic() < until:
        more = await engine.find(query._replace(cursor=page.cursor, limit=query.limit - len(page.jobs)))
        page = JobPage([*page.jobs, *more.jobs], more.cursor)
    return page


@router.post(
    "/v1/jobs/{job_id}/cancel",
    status_code=202,
    summary="Cancel a job",
    response_model=JobBody,
    openapi_extra=request_body(CancelRequest, is_required=False),
    responses=problems.responses(
        *ALWAYS, "job_not_found", "illegal_move", "unsupported_media_type", "validation_failed", "body_too_large"
    ),
)
async def cancel_job(request: Request, job_id: JobId, who: Writer) -> Response:
    """Cancel a job. A waiting job ends at once; a running job ends after its worker stops."""
    reason = (await read(request, CancelRequest)).reason if await request.body() else ""
    job = await state_of(request).engine.cancel(job_id, reason, requester_id=who.sees)
    return JsonAnswer(job_body(job), 202)


router.include_router(direct)
