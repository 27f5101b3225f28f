"""`/v1/jobs/{id}/events` and `/v1/events`: job events from any point on, as a live stream or as JSON pages."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, TypeAdapter
from starlette.requests import Request
from starlette.responses import Response

from callsheet.http import problems
from callsheet.http.json_bodies import json_text
from callsheet.http.keys import Principal
from callsheet.http.parameters import ALWAYS, JobId, Reader
from callsheet.http.problems import Problem
from callsheet.http.sse import EventStream, body_of, frame
from callsheet.http.state import ServerState, state_of
from callsheet.http.tickets import ID_LENGTH, LastEventId, TicketQuery, ticket_of, who_follows
from callsheet.kernel.errors import CallsheetError
from callsheet.kernel.job import Event, Job, Status
from callsheet.kernel.wire import event_id
from callsheet.store.protocol import JobQuery

from .cursor import known_seq
from .models import EventBody, EventList, Snapshot, Snapshots, Ticket, snapshot

if TYPE_CHECKING:
    from callsheet.engine.watch import Watcher

PAGE = 500
LOOK_S = 1.0
SMALL = 4 * 1024  # bytes of each job's snapshot when many are followed
LATE_MS = 5_000  # a job may be written up to this long after `created_at`
OPEN_STATUSES = (Status.QUEUED, Status.RUNNING)


def _frames(snapshot: type[BaseModel]) -> dict[str, Any]:
    """Return the OpenAPI schema of a stream: one frame, and the JSON schema of its `data`."""
    data = {"type": "string", "contentMediaType": "application/json"}
    either: Any = EventBody | snapshot
    content = TypeAdapter(either).json_schema()
    fields = {"id": {"type": "string"}, "event": {"type": "string"}, "data": {**data, "contentSchema": content}}
    return {"text/event-stream": {"schema": {"type": "object", "required": ["event", "data"], "properties": fields}}}


STREAM = {
    "content": {**_frames(Snapshot), "application/json": {"schema": EventList.model_json_schema()}},
    "description": "Frames `id`, `event`, `data`: first `hello`, then the job's events; or a page of them as JSON.",
}
OVER = {"description": "Everything was seen and the job has ended: do not come back."}
Jobs = Annotated[
    str, Query(max_length=8192, pattern="[^,]", description="Ids with commas between them, or `*`: all of yours.")
]
router = APIRouter(tags=["events"])


def _seen(
    request: Request,
    last_event_id: LastEventId = None,
    last_id: Annotated[
        str | None, Query(max_length=ID_LENGTH, description="The same, by the contract's own word.")
    ] = None,
) -> str | None:
    return request.headers.get("last-event-id") or last_event_id or last_id


Seen = Annotated[str | None, Depends(_seen)]


@router.get(
    "/v1/jobs/{job_id}/events",
    summary="Follow a job",
    response_class=Response,
    responses={
        200: STREAM,
        204: OVER,
        **problems.responses(*ALWAYS, "job_not_found", "too_many_streams", "validation_failed"),
    },
)
async def job_events(
    request: Request,
    job_id: JobId,
    seen: Seen,
    ticket: TicketQuery = None,
    after: Annotated[
        str | None, Query(max_length=ID_LENGTH, description="A page of events after this id, as JSON.")
    ] = None,
) -> Response:
    """Stream events until the job ends. Resume with Last-Event-ID; an unknown id is answered with a `reset` frame."""
    state = state_of(request)
    who = await who_follows(request, ticket, job_id)
    job = await state.engine.get(job_id, requester_id=who.sees)
    if _wants_json(request, is_requested=after is not None):
        return await _page(state, job, after or "")
    seq = await known_seq(state, job, seen) if seen else 0
    if seq is not None and job.status.terminal and seq >= job.event_seq:
        return Response(status_code=204)
    latest = event_id(job.event_ms, job.event_seq)
    present = {"job": snapshot(job), "last_event_id": latest}
    if seq is None:
        first, seq = frame("reset", present, latest), job.event_seq
    else:
        first = frame("hello", present)
    watcher = state.engine.follow({job.job_id: seq})
    if job.status.terminal and seq >= job.event_seq:
        watcher.end()  # after a reset, an ended job has only its snapshot
    return _open(state, who, first, watcher)


@router.post(
    "/v1/jobs/{job_id}/events/ticket",
    status_code=201,
    summary="A ticket for EventSource",
    response_model=Ticket,
    responses=problems.responses(*ALWAYS, "job_not_found"),
)
async def job_ticket(request: Request, job_id: JobId, who: Reader) -> Response:
    """Get a single-use ticket for this stream, valid for a minute: browsers cannot send a key with EventSource."""
    state = state_of(request)
    await state.engine.get(job_id, requester_id=who.sees)
    return await ticket_of(state, who, job_id, f"/v1/jobs/{job_id}/events?")


@router.post(
    "/v1/events/ticket",
    status_code=201,
    summary="A ticket for many jobs",
    response_model=Ticket,
    responses=problems.responses(*ALWAYS, "validation_failed"),
)
async def many_ticket(request: Request, who: Reader, jobs: Jobs = "*") -> Response:
    """Get a ticket for `/v1/events?jobs=…` with the same jobs; works like the ticket of one job."""
    return await ticket_of(state_of(request), who, f"jobs={jobs}", f"/v1/events?jobs={quote(jobs, safe='*,')}&")


@router.get(
    "/v1/events",
    summary="Follow many jobs",
    response_class=Response,
    responses={
        200: {**STREAM, "content": _frames(Snapshots)},
        204: OVER,
        **problems.responses(*ALWAYS, "job_not_found", "too_many_streams", "validation_failed"),
    },
)
async def many_events(
    request: Request,
    jobs: Jobs = "*",
    ticket: TicketQuery = None,
    last_event_id: LastEventId = None,
    tail: Annotated[bool, Query(description="Begin at the present, as `*` does, not with all there was.")] = False,  # noqa: FBT002
) -> Response:
    """Follow many jobs over one connection. `hello` holds every job's state; each `id` is a cursor to resume from."""
    state = state_of(request)
    who = await who_follows(request, ticket, f"jobs={jobs}")
    if jobs == "*":
        return await _all_jobs(state, who)
    ids = list(dict.fromkeys(part for part in jobs.split(",") if part))
    if not ids or len(ids) > state.limits.watched_jobs:
        raise Problem("validation_failed", f"jobs: name 1 to {state.limits.watched_jobs} ids, or *")
    selected_jobs = [await state.engine.get(job_id, requester_id=who.sees) for job_id in ids]
    cursor = _Cursor(selected_jobs)
    seen = request.headers.get("last-event-id") or last_event_id
    is_known = cursor.resume(seen)
    if tail and not seen:
        cursor.to_present()
    watcher = state.engine.follow({job_id: seq for job_id, seq in cursor.seqs.items() if not cursor.over(job_id)})
    if not watcher.seqs:
        watcher.end()
        if seen and is_known:
            return Response(status_code=204)
    present = {"jobs": [snapshot(job, SMALL) for job in selected_jobs]}
    first = frame("hello", present) if is_known else frame("reset", present, cursor.text)
    return _open(state, who, first, watcher, cursor)


class _Cursor:
    """Positions in several jobs as one event id: their `seq`s in the order of the request's job list."""

    def __init__(self, jobs: list[Job]) -> None:
        self.seqs = {job.job_id: 0 for job in jobs}
        self._last_seqs = {job.job_id: job.event_seq for job in jobs if job.status.terminal}
        self._latest = {job.job_id: job.event_seq for job in jobs}

    @property
    def text(self) -> str:
        """Return the cursor as an event id."""
        return "m." + ".".join(map(str, self.seqs.values()))

    def resume(self, text: str | None) -> bool:
        """Resume from an event id; a foreign id moves the cursor to the newest events and returns False."""
        if not text:
            return True
        kind, *parts = text.split(".")
        places = [int(part) for part in parts if part.isascii() and part.isdigit() and len(part) < 10]  # noqa: PLR2004
        latest = list(self._latest.values())
        fits = kind == "m" and len(places) == len(parts) == len(latest)
        if not fits or any(place > last for place, last in zip(places, latest, strict=True)):
            self.to_present()
            return False
        self.seqs = dict(zip(self.seqs, places, strict=True))
        return True

    def to_present(self) -> None:
        """Move the cursor to the newest event of every job."""
        self.seqs = dict(self._latest)

    def over(self, job_id: str) -> bool:
        """Return True if the job has ended and the cursor has reached its last event."""
        return self.seqs[job_id] >= self._last_seqs.get(job_id, self.seqs[job_id] + 1)

    def __call__(self, event: Event) -> str:
        """Advance the cursor to this event; returns the new event id."""
        self.seqs[event.job_id] = event.seq
        return self.text


async def _all_jobs(state: ServerState, who: Principal) -> EventStream:
    """Stream a requester's open jobs and new jobs; new jobs are polled once a second."""
    most = state.limits.watched_jobs
    new = JobQuery(who.sees, created_from=await state.engine.store.now() - LATE_MS, limit=most)
    seen = {job.job_id for job in (await state.engine.find(new)).jobs if job.status.terminal}
    page = await state.engine.find(JobQuery(who.sees, OPEN_STATUSES, limit=most))
    seen |= {job.job_id for job in page.jobs}
    watcher = state.engine.follow({job.job_id: job.event_seq for job in page.jobs}, open_ended=True)
    first = frame("hello", {"jobs": [snapshot(job, SMALL) for job in page.jobs]})
    answer = _open(state, who, first, watcher, lambda event: event_id(event.ms, event.seq))
    answer.beside = _look_for_more(state, new, watcher, seen)
    return answer


async def _look_for_more(state: ServerState, new: JobQuery, watcher: Watcher, seen: set[str]) -> None:
    """Follow new jobs up to the limit of watched jobs; further jobs wait until a watched job ends."""
    while not watcher.has_ended:
        await asyncio.sleep(LOOK_S)
        if (room := new.limit - len(watcher.seqs)) <= 0:
            continue
        with contextlib.suppress(CallsheetError):
            page = await state.engine.find(new)
            fresh = [job.job_id for job in reversed(page.jobs) if job.job_id not in seen]
            seen.update(fresh[:room])
            for job_id in fresh[:room]:
                watcher.follow(job_id, 0)
            if page.jobs and len(fresh) <= room:  # start the next query near the newest job
                new = new._replace(created_from=page.jobs[0].created_at - LATE_MS)


def _open(state: ServerState, who: Principal, first: bytes, watcher: Watcher, ident: object = None) -> EventStream:
    """Return the event stream; if the server refuses the stream, close the watcher."""
    try:
        return EventStream(state, who, first, watcher, ident)  # type: ignore[arg-type]
    except Problem:
        watcher.close()
        raise


def _wants_json(request: Request, *, is_requested: bool) -> bool:
    accept = request.headers.get("accept", "")
    return "text/event-stream" not in accept and (is_requested or "application/json" in accept)


async def _page(state: ServerState, job: Job, after: str) -> Response:
    """Return a JSON page of the stream's events. An unknown id starts from the beginning."""
    seq = (await known_seq(state, job, after) if after else 0) or 0
    events = await state.engine.store.events({job.job_id: seq}, PAGE)
    last = events[-1] if events else None
    latest = event_id(last.ms, last.seq) if last else after or event_id(job.event_ms, job.event_seq)
    is_end = job.status.terminal and (last.seq if last else seq) >= job.event_seq
    rest = f'"last_event_id":{json_text(latest)},"ended":{json_text(is_end)}'
    body = f'{{"events":[{",".join(map(body_of, events))}],{rest}}}'
    return Response(body, media_type="application/json")
