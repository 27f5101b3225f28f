"""`/v1/dead-letters`: list, replay or delete jobs that ended badly, one job or many jobs per request."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import uuid
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue
from starlette.requests import Request
from starlette.responses import Response

from callsheet.engine import Engine, dead_letters, operations
from callsheet.engine.dead_letters import Wanted
from callsheet.engine.ids import new_id
from callsheet.engine.operations import Operation
from callsheet.http import idempotency, problems
from callsheet.http.audit import act
from callsheet.http.json_bodies import JsonAnswer, parse_json, read, request_body
from callsheet.http.keys import Principal
from callsheet.http.parameters import ALWAYS, CURSOR, LATEST_MS, NO_NUL, JobId, Moment, Reader, Writer
from callsheet.http.problems import Problem
from callsheet.http.state import PerServer, ServerState, state_of
from callsheet.kernel.errors import IllegalMove, JobNotFound
from callsheet.kernel.job import Job
from callsheet.kernel.wire import event_id

from .jobs import AttemptBody, attempt_bodies
from .operations import OperationBody, operation_body

Text = Annotated[str, Field(max_length=255, pattern=NO_NUL)]
Which = Literal["dead_letter", "failed", "both"]


def _ms(moment: Any) -> Any:
    """Convert an RFC 3339 time to milliseconds; other values are returned unchanged."""
    if not isinstance(moment, str) or moment.isdecimal():
        return moment
    instant = datetime.fromisoformat(moment)  # raises ValueError, which pydantic reports
    if instant.tzinfo is None:
        raise ValueError("a moment has a time zone: 2030-01-31T08:00:00Z")
    return round(instant.timestamp() * 1000)


Time = Annotated[int, BeforeValidator(_ms, json_schema_input_type=int | str), Field(ge=0, le=LATEST_MS)]


class Filter(BaseModel):
    """Selects dead letters that match every given field.

    A range includes its `from` and excludes its `to`; both are milliseconds or RFC 3339 times.
    """

    model_config = ConfigDict(extra="forbid")
    status: Which = Field(
        default="dead_letter", description="`failed`: jobs that failed for good at once; `both` are these and the dead."
    )
    task: Text | None = None
    queue: Text | None = None
    contract: Text | None = None
    error_code: Text | None = Field(default=None, description="The `code` of the error that they ended with.")
    created_from: Time | None = None
    created_to: Time | None = None
    ended_from: Time | None = None
    ended_to: Time | None = None

    def query(self, who: Principal) -> Wanted:
        """Return the filter for the engine, limited to jobs that the principal may see."""
        times = {name: getattr(self, name) for name in Wanted._fields if name.endswith(("_from", "_to"))}
        return Wanted(who.sees, self.status, self.task, self.queue, self.contract, self.error_code, **times)


class PageFilter(Filter):
    """A filter with the page size and cursor."""

    limit: int = Field(default=50, ge=1, le=200)
    cursor: str | None = Field(default=None, pattern=CURSOR, description="`next` of the page before.")


class ReplayBody(Filter):
    """Selects dead letters to replay."""

    rate: float | None = Field(default=None, gt=0, le=100_000, allow_inf_nan=False, description="Jobs in a second.")
    limit: int | None = Field(default=None, ge=1, description="At most so many, the newest.")


class PurgeBody(Filter):
    """Selects dead letters to delete."""

    limit: int | None = Field(default=None, ge=1, description="At most so many, the newest.")
    all: bool = Field(default=False, description="Needed when nothing else is given: then all dead letters go.")


class DeadLetterBody(BaseModel):
    """A dead letter with its error.

    `error_class`: retryable, throttled, credentials, worker_lost, unknown_task or fatal.
    """

    job_id: str
    task: str
    queue: str
    contract: str
    requester_id: str
    status: str
    error: JsonValue
    error_class: str
    advice: str
    attempts: int
    max_attempts: int
    lease_losses: int
    priority: int
    correlation_id: str
    created_at: Moment
    started_at: Moment | None
    ended_at: Moment | None


class DeadLetterList(BaseModel):
    """A page of dead letters, newest first. A page may hold fewer than `limit`: read on while `next` is not null."""

    dead_letters: list[DeadLetterBody]
    next: str | None


class DeadLetter(DeadLetterBody):
    """A dead letter with payload and attempts.

    `replay_job_id`: the copy that a replay created. `can_replay` false: the job cannot be replayed; submit a new one.
    """

    payload: JsonValue
    history: list[AttemptBody]
    can_replay: bool
    replay_job_id: str | None
    last_event_id: str


class Replayed(BaseModel):
    """A replayed dead letter.

    `replay_job_id` is the job that runs now: the original job, or a copy if its contract cannot requeue an ended job.
    """

    job_id: str
    replay_job_id: str
    copied: bool
    status: str


def dead_letter_body(job: Job) -> dict[str, Any]:
    """Return a dead letter as a JSON value."""
    diagnosis = dead_letters.diagnose(job)
    return {
        "job_id": job.job_id,
        "task": job.kind,
        "queue": job.queue,
        "contract": job.contract,
        "requester_id": job.requester_id,
        "status": job.status.value,
        "error": parse_json(job.error) if job.error else None,
        "error_class": diagnosis.error_class,
        "advice": diagnosis.advice,
        "attempts": job.attempt_count,
        "max_attempts": job.max_attempts,
        "lease_losses": job.lease_losses,
        "priority": job.priority,
        "correlation_id": job.correlation_id,
        "created_at": job.created_at,
        "started_at": job.started_at,
        "ended_at": job.ended_at,
    }


log = logging.getLogger("callsheet.audit")
BODY = ("validation_failed", "unsupported_media_type", "body_too_large", "bad_request", "idempotency_conflict")
_KEY_NAMESPACE = uuid.UUID("3f6c1d07-54f4-4d6b-9d5a-6f4f6e9c2f11")
F = TypeVar("F", bound=Filter)
WAIT_S = 5
START_LOCK = PerServer(lambda _: asyncio.Lock())
router = APIRouter(prefix="/v1/dead-letters", tags=["dead letters"])


@router.get(
    "",
    summary="List dead letters",
    response_model=DeadLetterList,
    responses=problems.responses(*ALWAYS, "validation_failed"),
)
async def list_dead_letters(request: Request, who: Reader, page_filter: Annotated[PageFilter, Query()]) -> JsonAnswer:
    """List dead letters, newest first. Pages do not shift while new jobs arrive."""
    page = await dead_letters.find(
        state_of(request).engine, page_filter.query(who), page_filter.limit, page_filter.cursor
    )
    return JsonAnswer({"dead_letters": [dead_letter_body(job) for job in page.jobs], "next": page.cursor})


@router.post(
    "/replay",
    status_code=202,
    summary="Replay many",
    response_model=OperationBody,
    openapi_extra=request_body(ReplayBody, is_required=False),
    responses=problems.responses(*ALWAYS, *BODY),
)
async def replay_many(request: Request, who: Writer) -> Response:
    """Start an operation that replays dead letters. It continues after a crash; `Location` names its progress."""
    body = await _read(request, ReplayBody)
    return await _begin(request, who, Operation("", "replay", body.query(who), body.rate, body.limit), body)


@router.post(
    "/purge",
    status_code=202,
    summary="Purge many",
    response_model=OperationBody,
    openapi_extra=request_body(PurgeBody, is_required=False),
    responses=problems.responses(*ALWAYS, *BODY),
)
async def purge_many(request: Request, who: Writer) -> Response:
    """Start an operation that deletes dead letters with events and attempts. Without a filter, `all` is required."""
    body = await _read(request, PurgeBody)
    if not body.all and not body.model_fields_set - {"all", "limit"}:
        raise Problem("validation_failed", 'this would delete all dead letters: give a filter, or {"all": true}')
    return await _begin(request, who, Operation("", "purge", body.query(who), None, body.limit), body)


@router.get(
    "/{job_id}",
    summary="Read a dead letter",
    response_model=DeadLetter,
    responses=problems.responses(*ALWAYS, "job_not_found"),
)
async def get_dead_letter(request: Request, job_id: JobId, who: Reader) -> JsonAnswer:
    """Read the job, its error with class and advice, and every attempt."""
    engine = state_of(request).engine
    job = await _ended_badly(engine, job_id, who)
    (copy,) = await engine.store.get([dead_letters.copy_id(job)])
    more = {
        "payload": parse_json(job.payload),
        "history": attempt_bodies(await engine.store.attempts(job_id)),
        "can_replay": dead_letters.can_replay(job),
        "replay_job_id": copy.job_id if copy is not None else None,
        "last_event_id": event_id(job.event_ms, job.event_seq),
    }
    return JsonAnswer({**dead_letter_body(job), **more})


@router.post(
    "/{job_id}/replay",
    status_code=202,
    summary="Replay a dead letter",
    response_model=Replayed,
    responses=problems.responses(*ALWAYS, "job_not_found", "illegal_move", "queue_full", "quota_exceeded"),
)
async def replay(request: Request, job_id: JobId, who: Writer) -> JsonAnswer:
    """Requeue the job with fresh attempts, or run a copy. A job that is not a dead letter is refused."""
    engine = state_of(request).engine
    job = await engine.get(job_id, requester_id=who.sees)
    is_copy = not dead_letters.comes_back(_bad(job))
    quotas = state_of(request).quotas
    if not who.admin:
        await quotas.check_queued(job.requester_id)
    result = await dead_letters.replay(engine, [job.claim], quotas)
    if result.refused:
        raise IllegalMove(result.why)
    runs = await engine.get(dead_letters.copy_id(job) if is_copy else job_id)
    _audit("replay", who, job_id=job_id, replay_job_id=runs.job_id)
    await act(request, "dead_letters.replayed", target=job_id, requester_id=job.requester_id)
    return JsonAnswer(
        {"job_id": job_id, "replay_job_id": runs.job_id, "copied": is_copy, "status": runs.status.value}, 202
    )


@router.delete(
    "/{job_id}",
    status_code=204,
    summary="Delete a dead letter",
    response_class=Response,
    responses=problems.responses(*ALWAYS, "job_not_found", "illegal_move"),
)
async def delete(request: Request, job_id: JobId, who: Writer) -> Response:
    """Delete the job with its events, attempts and checkpoints. Undelivered callbacks are kept until their delivery."""
    engine = state_of(request).engine
    job = await _ended_badly(engine, job_id, who)
    if not await engine.store.delete([job.claim]):
        raise IllegalMove(f"job {job_id} was brought back meanwhile; it is not deleted")
    _audit("delete", who, job_id=job_id)
    await act(request, "dead_letters.purged", target=job_id, requester_id=job.requester_id)
    return Response(status_code=204)


async def _ended_badly(engine: Engine, job_id: str, who: Principal) -> Job:
    """Return a dead-lettered or failed job that the principal may see; raises JobNotFound for every other job."""
    job = await engine.get(job_id, requester_id=who.sees)
    if job.status not in dead_letters.ENDED_BADLY:
        raise JobNotFound(f"no job {job_id} among the dead letters; it is {job.status.value}")
    return job


def _bad(job: Job) -> Job:
    if job.status not in dead_letters.ENDED_BADLY:
        raise IllegalMove(f"job {job.job_id} is {job.status.value}, and no dead letter to replay")
    return job


async def _read(request: Request, model: type[F]) -> F:
    return await read(request, model) if await request.body() else model()


async def _begin(request: Request, who: Principal, operation: Operation, selection: Filter) -> Response:
    state, key = state_of(request), idempotency.key_of(request)
    request_hash = hashlib.sha256(f"{operation.action} {selection.model_dump_json()}".encode()).hexdigest()
    operation_id = new_id() if key is None else str(uuid.uuid5(_KEY_NAMESPACE, f"{who.requester_id}\0{key}"))
    new_operation = operation._replace(operation_id=operation_id, request_hash=request_hash, actor=who.key_id)
    async with START_LOCK.of(state):  # each operation is counted before the next one starts
        await _check_open(state, who, operation_id)
        stored_operation = await operations.begin(state.engine.store, new_operation)
    if state.operations is not None:
        state.operations.wake()
    _audit(operation.action, who, operation_id=stored_operation.operation_id)
    await act(request, operations.ACT_OF[operation.action], target=stored_operation.operation_id, many=True)
    headers = {"Location": f"/v1/operations/{stored_operation.operation_id}"}
    return JsonAnswer(operation_body(stored_operation), 202, headers)


async def _check_open(state: ServerState, who: Principal, operation_id: str) -> None:
    """Raise Problem `too_many_requests` if the tenant has too many open operations; a repeated request passes."""
    store = state.engine.store
    if who.sees is None or await operations.get(store, operation_id) is not None:
        return
    if not await operations.make_room(store, who.sees):
        detail = f"{operations.MOST_OPEN} operations of yours have not ended; wait for one, or stop one"
        raise Problem("too_many_requests", detail, headers={"Retry-After": str(WAIT_S)})


def _audit(action: str, who: Principal, **subject: str) -> None:
    """Log the caller's key and the affected ids; the log line contains no text that a client can write."""
    fields = {"event": f"dead_letters.{action}", "key_id": who.key_id, "requester_id": who.requester_id, **subject}
    log.info(
        "dead letters: %s by key %s (%s)", action, who.key_id, " ".join(subject.values()), extra={"fields": fields}
    )
