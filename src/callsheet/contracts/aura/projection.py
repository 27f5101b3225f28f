"""Translates the engine's events to this contract's events; the engine's own events stay the single source.

An engine event becomes up to three contract events. Their ids are `{ms}-{counter}`; the counter combines the engine
event's number with a place, so ids are unique, ascending and resumable. Places are fixed: first an implicitly completed
stage, then the event's own messages, last a held progress report.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from callsheet.http.json_bodies import parse_json
from callsheet.kernel.contracts import AURA
from callsheet.kernel.errors import InvalidInput
from callsheet.kernel.events import TERMINAL_EVENTS
from callsheet.kernel.job import Event, Job
from callsheet.kernel.wire import event_id, parse_event_id

from .models import errors_of, stage_of, utc, whole

PLACES = 4  # contract events per engine event
OWN = 1  # first place of an event's own messages, if it may also complete a stage
END_PLACES = 3  # places of an end: completed stage, status, outcome
LOGS = ("log", "warning", "retrying", "lease_lost", "error")
MOST_LOGS = 50
TYPES = (
    "job-status",
    "step-status",
    "step-progress",
    "warning",
    "error",
    "job-completed",
    "job-failed",
    "job-cancelled",
)


class ContractEvent(NamedTuple):
    """A contract event with its time, its engine event's number and its place."""

    ms: int
    seq: int
    place: int
    type: str
    data: dict[str, Any]

    @property
    def id(self) -> str:
        """Return the event id that a client resumes from."""
        return event_id(self.ms, self.seq * PLACES + self.place)

    def standing_behind(self, event: Event) -> ContractEvent:
        """Return this report at the last place of `event`, to be sent after the event's own messages."""
        return self._replace(ms=event.ms, seq=event.seq, place=PLACES - 1)


class Position(NamedTuple):
    """A position in a job's events: all before `seq` were seen, and of `seq` itself the first `places` places."""

    seq: int
    places: int


def position_of(text: str) -> Position:
    """Return the position of an event id; raises InvalidInput for a foreign id."""
    _, counter = parse_event_id(text)
    seq, place = divmod(counter, PLACES)
    if seq < 1:
        raise InvalidInput("an event id of this contract is {ms}-{counter}")
    return Position(seq, place + 1)


def latest_id(job: Job) -> str:
    """Return the id behind the job's newest event: a client that resumes here gets only later events."""
    return event_id(job.event_ms, job.event_seq * PLACES + PLACES - 1)


class Output(NamedTuple):
    """A job's output besides its result: files, and the last lines of its log."""

    artifacts: Sequence[dict[str, Any]] = ()
    logs: Sequence[str] = ()


def log_lines(events: Iterable[Event]) -> list[str]:
    """Return logged events as lines of time, kind, stage and message."""
    lines = [_log_line(event) for event in events if event.type in LOGS]
    return lines[-MOST_LOGS:]


def _log_line(event: Event) -> str:
    body = parse_json(event.data)
    data: dict[str, Any] = body if isinstance(body, dict) else {}
    kind = str(data.get("level", "info")) if event.type == "log" else event.type
    return f"{utc(event.ms)} {kind} {event.step or 'Initialization'}: {data.get('message', '')}"


def contract_events(event: Event, job: Job, output: Output = Output(), *, completes: str = "") -> list[ContractEvent]:  # noqa: B008 - a tuple
    """Return the contract's events for an engine event. For an end, `job` must carry the result or the error.

    `completes` is the stage that the event completes implicitly.
    """
    messages = _own_messages(event, job, output)
    first = OWN if event.type == "stage" or event.type in TERMINAL_EVENTS else 0
    events = [(first + n, name, data) for n, (name, data) in enumerate(messages)]
    if completes:
        events.insert(0, (0, "step-status", _step(completes, "completed")))
    same = {"correlationId": job.correlation_id}
    return [ContractEvent(event.ms, event.seq, place, name, {**data, **same}) for place, name, data in events]


def _own_messages(event: Event, job: Job, output: Output) -> list[tuple[str, dict[str, Any]]]:
    step = event.step or "Initialization"
    body = parse_json(event.data)
    data: dict[str, Any] = body if isinstance(body, dict) else {}
    percent = whole(event.progress)
    match event.type:
        case "queued":
            return [("job-status", {"status": "Queued", "stage": "Queued", "percent": percent})]
        case "running" | "requeued" | "released" | "cancel_requested":
            return [("job-status", {"status": "Running", "stage": step, "percent": percent})]
        case "stage":
            return [
                ("step-status", _step(step, "started")),
                ("job-status", {"status": "Running", "stage": step, "percent": percent}),
            ]
        case "checkpoint" if not step.startswith("~"):
            return [("step-status", _step(step, "completed"))]
        case "progress":
            more = {"progressPct": percent, "message": str(data.get("message", ""))}
            return [("step-progress", {"step": step, "phase": AURA.phase_of(step).name, **more})]
        case "warning" | "waiting":
            return [("warning", {"message": str(data.get("message", "")), "step": step})]
        case "log" if data.get("level") in ("warning", "error"):
            return [("warning", {"message": str(data.get("message", "")), "step": step})]
        case "lease_lost":
            return [("warning", {"message": "the worker went silent; another one takes over", "step": step})]
        case "retrying":
            return [("error", {"message": str(data.get("message", "")), "step": step, "willRetry": True})]
    return _end(event, job, output)


def _end(event: Event, job: Job, job_output: Output) -> list[tuple[str, dict[str, Any]]]:
    """Return the events of a job's end: first the status change, then the outcome."""
    about = {"jobId": job.job_id}
    stage, percent = stage_of(job), whole(event.progress)
    match event.type:
        case "done":
            output = parse_json(job.result) if job.result else None
            came = ("job-completed", {"status": "Done", **about, "artifacts": job_output.artifacts, "output": output})
            stage, percent = "Complete", 100
        case "error":
            came = (
                "job-failed",
                {"status": "Failed", **about, "stage": stage, **_failure(job), "logs": job_output.logs},
            )
        case "canceled":
            message = job.cancel_reason or "the job was cancelled"
            came = ("job-cancelled", {"status": "Canceled", **about, "stage": stage, "message": message})
        case _:
            return []
    return [("job-status", {"status": came[1]["status"], "stage": stage, "percent": percent}), came]


def _failure(job: Job) -> dict[str, Any]:
    errors = errors_of(job)
    return {"errors": errors, "errorMessage": errors[0]["message"] if errors else "the job failed"}


def _step(step: str, status: str) -> dict[str, Any]:
    return {"step": step, "status": status, "phase": AURA.phase_of(step).name}
