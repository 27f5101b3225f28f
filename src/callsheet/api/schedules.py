"""`/v1/schedules`: jobs that are made at the times of a cron line or at an interval, in a time zone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field, JsonValue, model_validator
from starlette.requests import Request
from starlette.responses import Response

from callsheet.engine import schedules as engine_schedules
from callsheet.engine.ids import new_id
from callsheet.engine.schedules import Missed, Overlap, Schedule, ScheduleState, Source
from callsheet.http import problems
from callsheet.http.auth import check
from callsheet.http.json_bodies import JsonAnswer, read, request_body
from callsheet.http.parameters import ALWAYS, Reader, Writer
from callsheet.http.problems import Problem
from callsheet.http.state import ServerState, state_of
from callsheet.kernel.durations import milliseconds
from callsheet.kernel.wire import decode

from .creation import Creation
from .new_jobs import CreateJob, Length, own_key

if TYPE_CHECKING:
    from callsheet.http.keys import Principal
    from callsheet.kernel.job import NewJob

NEXT_RUNS = 5
MOST_OF_TENANT = 50
TENANT_PAYLOAD_BYTES = 8 * 1024  # every sweep of every process reads all schedules
ONCE_ONLY = ("delay", "run_at", "unique_key", "concurrency", "depends_on", "correlation_id")
router = APIRouter(tags=["schedules"])
Name = Annotated[
    str, Path(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f/]+$", description="The schedule's name.")
]


class PutSchedule(CreateJob):
    """A schedule: a job with the options of `POST /v1/jobs`, and its times."""

    cron: str = Field(default="", max_length=200, description="Five fields: minute, hour, day, month, weekday.")
    every: Length | None = Field(default=None, description="In place of `cron`: an interval, such as `10m`.")
    timezone: str = Field(default="UTC", min_length=1, max_length=100, examples=["Europe/Berlin"])
    missed: Literal["skip", "once", "all"] = Field(
        default="once", description="Slots that passed while nothing looked: none runs, one for all, or each."
    )
    most: int = Field(default=100, ge=1, le=engine_schedules.MOST_MISSED, description="With `all`: the last so many.")
    overlap: Literal["queue", "skip", "cancel"] = Field(
        default="queue", description="While the job before has not ended: run beside it, skip the slot, or cancel it."
    )
    paused: bool = False

    @model_validator(mode="after")
    def _one_time(self) -> PutSchedule:
        """Refuse a schedule without times, with two kinds of times, or with what is about one job alone."""
        if bool(self.cron) == (self.every is not None):
            raise ValueError("cron: give either cron or every")
        if wrong := next((name for name in ONCE_ONLY if name in self.model_fields_set), None):
            raise ValueError(f"{wrong}: is about one job, and a schedule makes many; leave it out")
        return self


class Run(BaseModel):
    """One run of a schedule. `status` is null for a job that is no longer kept."""

    slot: int = Field(description="Milliseconds since the epoch.")
    job_id: str
    status: str | None


class ScheduleBody(BaseModel):
    """A schedule with its next runs and its last ones."""

    name: str
    task: str
    payload: JsonValue
    queue: str
    priority: int
    contract: str
    max_attempts: int | None
    cron: str
    every_ms: int
    timezone: str
    missed: str
    most: int
    overlap: str
    paused: bool
    source: str = Field(description="`code`: declared by a program, and follows it; `api`: made by somebody.")
    requester_id: str
    next_runs: list[int] = Field(description="The next five slots; none while it is paused.")
    last_runs: list[Run]
    runs: int
    skipped: int


class ScheduleList(BaseModel):
    """All schedules that the caller sees, by name."""

    schedules: list[ScheduleBody]


class RunReceipt(BaseModel):
    """The job that was made at once."""

    job_id: str


@router.get(
    "/v1/schedules", summary="List schedules", response_model=ScheduleList, responses=problems.responses(*ALWAYS)
)
async def list_schedules(request: Request, who: Reader) -> Response:
    """List schedules with their next and last runs."""
    server = state_of(request)
    states = [s for s in await engine_schedules.schedule_states(server.engine.store) if _is_seen(s.schedule, who)]
    return JsonAnswer({"schedules": await _bodies(server, states, who)})


@router.get(
    "/v1/schedules/{name}",
    summary="Read a schedule",
    response_model=ScheduleBody,
    responses=problems.responses(*ALWAYS, "not_found", "validation_failed"),
)
async def get_schedule(request: Request, name: Name, who: Reader) -> Response:
    """Read one schedule with its next and last runs."""
    server = state_of(request)
    return JsonAnswer((await _bodies(server, [await _find(server, who, name)], who))[0])


@router.put(
    "/v1/schedules/{name}",
    summary="Make or change a schedule",
    response_model=ScheduleBody,
    openapi_extra=request_body(PutSchedule),
    responses=problems.responses(
        *ALWAYS,
        "unsupported_media_type",
        "body_too_large",
        "payload_too_large",
        "validation_failed",
        "invalid_input",
        "unknown_task",
        "invalid_payload",
        "task_reserved",
        "document_conflict",
    ),
)
async def put_schedule(request: Request, name: Name) -> Response:
    """Make a schedule, or replace the one of this name; it runs from the next slot on."""
    who = await check(request, "jobs:write")
    server, body = state_of(request), await read(request, PutSchedule)
    schedule = _schedule(name, who, body, await Creation(server, who, "").new_job(body))
    if who.sees is not None and len(schedule.payload.encode()) > TENANT_PAYLOAD_BYTES:
        advice = "put large data into the object store and name its key"
        raise Problem("payload_too_large", f"payload: a schedule's has at most {TENANT_PAYLOAD_BYTES} bytes; {advice}")
    store = server.engine.store
    states = await engine_schedules.schedule_states(store)
    before = next((state for state in states if state.schedule.name == schedule.name), None)
    if before is not None and before.schedule.source == Source.CODE:
        raise Problem(
            "document_conflict", f"schedule {name} is declared by a program; change it there, or pause it here"
        )
    if before is None and who.sees is not None and sum(_is_seen(s.schedule, who) for s in states) >= MOST_OF_TENANT:
        raise Problem("document_conflict", f"a tenant has at most {MOST_OF_TENANT} schedules; delete one of yours")
    await engine_schedules.put_schedule(store, schedule)
    return JsonAnswer((await _bodies(server, [await _find(server, who, name)], who))[0])


@router.delete(
    "/v1/schedules/{name}",
    status_code=204,
    summary="Delete a schedule",
    responses=problems.responses(*ALWAYS, "not_found", "validation_failed", "document_conflict"),
)
async def delete_schedule(request: Request, name: Name, who: Writer) -> Response:
    """Delete a schedule; jobs that it made stay."""
    server = state_of(request)
    state = await _find(server, who, name)
    if state.schedule.source == Source.CODE:
        raise Problem(
            "document_conflict", f"schedule {name} is declared by a program; remove it there, or pause it here"
        )
    await engine_schedules.delete_schedule(server.engine.store, state.schedule.name)
    return Response(status_code=204)


@router.post(
    "/v1/schedules/{name}/pause",
    summary="Pause a schedule",
    response_model=ScheduleBody,
    responses=problems.responses(*ALWAYS, "not_found", "validation_failed"),
)
async def pause_schedule(request: Request, name: Name, who: Writer) -> Response:
    """Let no slot run until the schedule is resumed."""
    return await _set_pause(request, who, name, paused=True)


@router.post(
    "/v1/schedules/{name}/resume",
    summary="Resume a schedule",
    response_model=ScheduleBody,
    responses=problems.responses(*ALWAYS, "not_found", "validation_failed"),
)
async def resume_schedule(request: Request, name: Name, who: Writer) -> Response:
    """Go on with the next slot; slots of the pause do not run."""
    return await _set_pause(request, who, name, paused=False)


@router.post(
    "/v1/schedules/{name}/run",
    status_code=202,
    summary="Run a schedule now",
    response_model=RunReceipt,
    responses=problems.responses(*ALWAYS, "not_found", "validation_failed", "queue_full"),
)
async def run_schedule(request: Request, name: Name, who: Writer) -> Response:
    """Make the schedule's job at once, beside its slots."""
    server = state_of(request)
    state = await _find(server, who, name)
    now = await server.engine.store.now()
    new = state.schedule.job_at(now)._replace(job_id=new_id())
    (answer,) = await server.batcher.enqueue_all([new])
    await engine_schedules.note_run(server.engine.store, state.schedule.name, now, answer.job_id)
    return JsonAnswer({"job_id": answer.job_id}, 202)


async def _set_pause(request: Request, who: Principal, name: str, *, paused: bool) -> Response:
    server = state_of(request)
    state = await _find(server, who, name)
    state_after = await engine_schedules.pause_schedule(server.engine.store, state.schedule.name, paused=paused)
    if state_after is None:
        raise _unknown(name)
    return JsonAnswer((await _bodies(server, [state_after], who))[0])


def _schedule(name: str, who: Principal, body: PutSchedule, new: NewJob) -> Schedule:
    """Return the schedule that a request asks for, with the job as its route would make it."""
    return Schedule(
        name=own_key(who.sees or "", name),
        cron=body.cron,
        kind=new.kind,
        payload=new.payload,
        queue=new.queue,
        priority=new.priority,
        requester_id=new.requester_id,
        contract=new.contract,
        timezone=body.timezone,
        every_ms=0 if body.every is None else milliseconds(body.every),
        max_attempts=new.max_attempts,
        retry=new.retry,
        ttl_s=new.ttl_s,
        missed=Missed(body.missed).value,
        most=body.most,
        overlap=Overlap(body.overlap).value,
        paused=body.paused,
    )


async def _find(server: ServerState, who: Principal, name: str) -> ScheduleState:
    """Return the caller's schedule of a name; raises Problem `not_found`."""
    stored_name = own_key(who.sees, name) if who.sees else name
    states = await engine_schedules.schedule_states(server.engine.store, stored_name)
    if not states or not _is_seen(states[0].schedule, who):
        raise _unknown(name)
    return states[0]


def _unknown(name: str) -> Problem:
    return Problem("not_found", f"there is no schedule {name[:100]}; GET /v1/schedules lists yours")


def _is_seen(schedule: Schedule, who: Principal) -> bool:
    return who.sees is None or (schedule.requester_id == who.sees and schedule.name.startswith(own_key(who.sees, "")))


async def _bodies(server: ServerState, states: list[ScheduleState], who: Principal) -> list[dict[str, Any]]:
    """Return schedules as the API shows them, with the statuses of their last jobs, read at once."""
    ids = list({job_id for state in states for _, job_id in state.history})
    jobs = await server.engine.store.get(ids) if ids else []
    statuses = {job.job_id: job.status.value for job in jobs if job is not None}
    return [_body(state, statuses, who) for state in states]


def _body(state: ScheduleState, statuses: dict[str, str], who: Principal) -> dict[str, Any]:
    schedule = state.schedule
    prefix = own_key(who.sees, "") if who.sees else ""
    slots = schedule.slots(state.next_slot - 1)
    runs = [{"slot": s, "job_id": job_id, "status": statuses.get(job_id)} for s, job_id in reversed(state.history)]
    own = ("queue", "priority", "contract", "max_attempts", "cron", "every_ms", "timezone", "missed", "most", "overlap")
    return {
        "name": schedule.name.removeprefix(prefix),
        "task": schedule.kind,
        "payload": decode(schedule.payload),
        **{name: getattr(schedule, name) for name in (*own, "paused", "source", "requester_id")},
        "next_runs": [] if schedule.paused else [slot for slot, _ in zip(slots, range(NEXT_RUNS), strict=False)],
        "last_runs": runs,
        "runs": state.runs,
        "skipped": state.skipped,
    }
