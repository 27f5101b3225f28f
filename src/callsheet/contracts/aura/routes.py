"""`/api/jobs`: create, read, list, follow, cancel and resume live jobs in the words of contract 004."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, FastAPI, Query
from starlette.requests import Request
from starlette.responses import Response

from callsheet.engine import resuming
from callsheet.engine.ids import new_id
from callsheet.http import idempotency, problems, tickets
from callsheet.http.auth import check
from callsheet.http.json_bodies import JsonAnswer, json_text, read, request_body
from callsheet.http.parameters import ALWAYS, CURSOR, JobId, Reader, Writer
from callsheet.http.problems import Problem
from callsheet.http.sse import frame
from callsheet.http.state import PerServer, ServerState, state_of
from callsheet.http.tickets import LastEventId, TicketQuery, ticket_of, who_follows
from callsheet.kernel.errors import IllegalMove, InvalidInput
from callsheet.kernel.job import Idempotency, Job, NewJob, Status
from callsheet.kernel.wire import encode, parse_event_id
from callsheet.store.protocol import JobQuery

from .folders import cleanup_of
from .models import (
    COMPOSE,
    CancelBody,
    Cancelled,
    CreateBody,
    Created,
    JobBody,
    JobList,
    Resumed,
    Word,
    can_resume,
    job_body,
    last_step,
    stage_of,
    states_of,
    whole,
    word_of,
)
from .projection import END_PLACES, OWN, PLACES, Position, latest_id, position_of
from .stream import LiveStream

CONTRACT, QUEUE = "aura", "default"
LATEST = 200  # events of a job that are searched for its last completed step
Window = Annotated[
    str | None,
    Query(
        max_length=64,
        pattern=r"^[A-Za-z0-9_-]*$",
        description="A name that one window or program gives itself. A newer stream ends an older one of the same "
        "window alone. Without it, each ticket is a window, and so is each session, and each key.",
    ),
]
BODY = ("validation_failed", "unsupported_media_type", "body_too_large", "payload_too_large")


@contextlib.asynccontextmanager
async def _sweeping(app: FastAPI) -> AsyncIterator[None]:
    """Start the cleanup of abandoned folders with the server."""
    cleanup_of(app.state.server_state)
    yield


router = APIRouter(prefix="/api/jobs", tags=["live jobs"], lifespan=_sweeping)


@router.post(
    "",
    status_code=202,
    summary="Create a live job",
    response_model=Created,
    openapi_extra=request_body(CreateBody),
    responses=problems.responses(*ALWAYS, *BODY, "bad_request", "idempotency_conflict", "queue_full", "task_reserved"),
)
async def create(request: Request) -> Response:
    """Create a job; the answer is sent once the job is stored durably."""
    who = await check(request, "jobs:write")
    body = await read(request, CreateBody)
    new = NewJob(
        new_id(),
        body.task,
        encode(body.payload),
        QUEUE,
        priority=body.priority,
        requester_id=who.requester_id,
        contract=CONTRACT,
        correlation_id=_correlation(request),
    )
    answer = _receipt(new.job_id, new.correlation_id)
    if (key := idempotency.key_of(request)) is not None:
        same = idempotency.request_hash(request, body.model_dump())
        new = new._replace(idempotency=Idempotency(key, same, json_text(answer)))
    enqueue_result = await state_of(request).batcher.enqueue(new)
    headers = {"Location": f"/api/jobs/{enqueue_result.job_id}"}
    if not enqueue_result.created:
        headers["Idempotency-Replayed"] = "true"
    return Response(enqueue_result.response or json_text(answer), 202, headers, media_type="application/json")


def _receipt(job_id: str, correlation_id: str) -> dict[str, Any]:
    events = f"/api/jobs/{job_id}/events"
    return {"jobId": job_id, "status": "Queued", "eventsUrl": events, "correlationId": correlation_id}


def _correlation(request: Request) -> str:
    return str(request.scope["callsheet.request_id"])


@router.get(
    "/{job_id}",
    summary="Read a live job",
    response_model=JobBody,
    responses=problems.responses(*ALWAYS, "job_not_found"),
)
async def get(request: Request, job_id: JobId, who: Reader) -> Response:
    """Read the job's present state."""
    state = state_of(request)
    return JsonAnswer(await _body(state, await state.engine.get(job_id, requester_id=who.sees)))


async def _body(state: ServerState, job: Job) -> dict[str, Any]:
    return {**job_body(job, await _last_completed(state, job)), "lastEventId": latest_id(job)}


async def _last_completed(state: ServerState, job: Job) -> str | None:
    """Return the step completed last, by this job or by a job that it resumes."""
    if job.started_at is None and not job.status.terminal:
        return None
    results = (await state.engine.steps(job)).results
    if job.kind == COMPOSE or not results:
        return last_step(results)
    latest = await state.engine.store.events({job.job_id: max(0, job.event_seq - LATEST)}, LATEST)
    names = [event.step for event in latest if event.type == "checkpoint" and event.step in results]
    return names[-1] if names else list(results)[-1]


@router.get(
    "", summary="List live jobs", response_model=JobList, responses=problems.responses(*ALWAYS, "validation_failed")
)
async def find(  # noqa: PLR0913, PLR0917 - each is a filter
    request: Request,
    who: Reader,
    status: Annotated[
        list[Word | Literal["Succeeded"]] | None,
        Query(description="Only jobs in this status; Succeeded is Done. May be given again."),
    ] = None,
    task: Annotated[str | None, Query(max_length=255, pattern=r"^[^\x00]*$")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: Annotated[str | None, Query(pattern=CURSOR)] = None,
) -> Response:
    """List the jobs of this contract, newest first."""
    state = state_of(request)
    statuses, has_begun = states_of(status or ())
    query = JobQuery(who.sees, statuses, task, contract=CONTRACT, limit=limit, cursor=cursor, has_begun=has_begun)
    page = await state.engine.find(query)
    bodies = await asyncio.gather(*(_body(state, job) for job in page.jobs))
    return JsonAnswer({"jobs": bodies, "next": page.cursor})


@router.post(
    "/{job_id}/cancel",
    status_code=202,
    summary="Cancel a live job",
    response_model=Cancelled,
    openapi_extra=request_body(CancelBody, is_required=False),
    responses=problems.responses(*ALWAYS, *BODY, "job_not_found", "illegal_move"),
)
async def cancel(request: Request, job_id: JobId, who: Writer) -> Response:
    """Stop the work, remove the job's files, then mark the job Canceled. A finished job is answered with 409."""
    state = state_of(request)
    reason = (await read(request, CancelBody)).reason if await request.body() else ""
    job = await state.engine.cancel(job_id, reason, requester_id=who.sees)
    cleanup_of(state).schedule(job.job_id)
    answer = {
        "jobId": job.job_id,
        "status": word_of(job),
        "cleanupScheduled": True,
        "correlationId": job.correlation_id,
    }
    return JsonAnswer(answer, 202)


@router.post(
    "/{job_id}/resume",
    status_code=202,
    summary="Resume a live job",
    response_model=Resumed,
    responses=problems.responses(*ALWAYS, "job_not_found", "not_resumable", "queue_full"),
)
async def resume(request: Request, job_id: JobId, who: Writer) -> Response:
    """Resume an ended job as a new job, which takes over the completed steps. The old job stays unchanged."""
    state = state_of(request)
    job = await state.engine.get(job_id, requester_id=who.sees)
    last = await _last_completed(state, job)
    if last is None or not can_resume(job, last):
        raise Problem("not_resumable", _why_not(job, last))
    try:
        resumed_job = await resuming.resume(state.engine.store, job, state.batcher.enqueue)
    except IllegalMove as error:
        raise Problem("not_resumable", str(error)) from None
    answer = {**_receipt(resumed_job.job_id, resumed_job.correlation_id), "status": word_of(resumed_job)}
    return JsonAnswer({**answer, "resumedFrom": job.job_id, "lastCompletedStep": last}, 202)


def _why_not(job: Job, last: str | None) -> str:
    """Return the reason why the job cannot be resumed."""
    if not job.status.terminal:
        return f"this job is {word_of(job)}; only one that failed or was cancelled is resumed"
    if job.status is Status.SUCCEEDED:
        return "this job is done; create a new one"
    return f"nothing was completed before {stage_of(job)}; create a new job" if last is None else "it cannot be resumed"


@router.get(
    "/{job_id}/events",
    summary="Follow a live job",
    response_class=Response,
    responses={
        200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "The eight events."},
        204: {"description": "Everything was seen and the job has ended: do not come back."},
        **problems.responses(*ALWAYS, "job_not_found", "too_many_streams", "validation_failed"),
    },
)
async def events(
    request: Request,
    job_id: JobId,
    ticket: TicketQuery = None,
    last_event_id: LastEventId = None,
    window: Window = None,
) -> Response:
    """Stream events until the job ends; resume with `lastEventId`. A newer stream of the same window ends the older."""
    state = state_of(request)
    who = await who_follows(request, ticket, f"live={job_id}", client=_client_of(state, request))
    job = await state.engine.get(job_id, requester_id=who.sees)
    seen = request.headers.get("last-event-id") or last_event_id
    first, after = b"", None
    if seen:
        after = await _known_place(state, job, seen)
        if after is None and job.status.terminal:  # send the present state, then the outcome
            after = Position(job.event_seq, OWN)
        elif after is None:  # a foreign id: send the present state, then new events
            first = frame("job-status", _present(job), latest_id(job))
            after = Position(job.event_seq, PLACES)
        elif job.status.terminal and after.seq >= job.event_seq and after.places >= END_PLACES:
            return Response(status_code=204)
    watcher = state.engine.follow({job.job_id: after.seq - 1 if after is not None else 0})
    try:
        stream = LiveStream(state, who, first, watcher, job, after)
    except Problem:
        watcher.close()
        raise
    own = window or (tickets.window_of(ticket) if ticket else who.session_id)
    _replace_older(state, (who.key_id, job_id, own), stream)
    return stream


def _present(job: Job) -> dict[str, Any]:
    answer = {"status": word_of(job), "stage": stage_of(job), "percent": whole(job.progress)}
    return {**answer, "correlationId": job.correlation_id}


def _client_of(state: ServerState, request: Request) -> str:
    """Return a client's address and user agent, which stay the same when the client reconnects."""
    return f"{state.proxies.client_of(request)} {request.headers.get('user-agent', '')}"


async def _known_place(state: ServerState, job: Job, text: str) -> Position | None:
    """Return the position of an event id of this job; None for a foreign id, even if only its time is wrong."""
    try:
        place, ms = position_of(text), parse_event_id(text)[0]
    except InvalidInput:
        return None
    if place.seq >= job.event_seq:
        return place if (place.seq, ms) == (job.event_seq, job.event_ms) else None
    events = await state.engine.store.events({job.job_id: place.seq - 1}, 1)
    return place if events and (events[0].seq, events[0].ms) == (place.seq, ms) else None


class _Open(dict[tuple[str, str, str], LiveStream]):
    """The newest stream of each key, job and window."""


_OPEN = PerServer(lambda _: _Open())


def _replace_older(state: ServerState, name: tuple[str, str, str], stream: LiveStream) -> None:
    """Register the stream as the only connection of its key, job and window, and end the older stream."""
    streams = _OPEN.of(state)
    older = streams.get(name)
    if older is not None:
        older.end()
    streams[name] = stream
    for other in [key for key, open_stream in streams.items() if open_stream not in state.open]:
        del streams[other]


@router.post(
    "/{job_id}/events/ticket",
    status_code=201,
    summary="A ticket for EventSource",
    responses=problems.responses(*ALWAYS, "job_not_found"),
)
async def ticket(request: Request, job_id: JobId, who: Reader) -> Response:
    """Get a ticket for this stream, to use within a minute. The client that used the ticket may reconnect with it."""
    state = state_of(request)
    await state.engine.get(job_id, requester_id=who.sees)
    return await ticket_of(state, who, f"live={job_id}", f"/api/jobs/{job_id}/events?")
