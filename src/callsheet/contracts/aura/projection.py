"""One source of events, two projections: the engine's events as this contract tells them.

An event of the engine becomes up to three of the contract's. Their ids are `{ms}-{counter}`, the counter made of the
event's own number and the place within it, so that every id is unique, rises, and says where to go on. The places are
fixed: what an event completes is at the first, what it tells itself is behind, a report of progress that was held back
until then is at the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from callsheet.http.json_text import parsed
from callsheet.kernel.errors import InvalidInput
from callsheet.kernel.events import TERMINAL_EVENTS
from callsheet.kernel.job import Event, Job
from callsheet.kernel.progress import phase_of
from callsheet.kernel.wire import event_id, parse_event_id

from .models import errors_of, stage_of, utc, whole

PLACES = 4  # of the contract's events within one of the engine's
OWN = 1  # the first place of what an event tells itself, where it may complete a stage, too
END_PLACES = 3  # of those within an end: the stage that is completed, the status, and what came of it
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


class Told(NamedTuple):
    """An event in the contract's words, and where it stands: when, at which event of the engine, at which place."""

    ms: int
    seq: int
    place: int
    type: str
    data: dict[str, Any]

    @property
    def id(self) -> str:
        """The id that a client goes on from."""
        return event_id(self.ms, self.seq * PLACES + self.place)

    def standing_behind(self, event: Event) -> Told:
        """Return the same, to be told after all that an event tells."""
        return self._replace(ms=event.ms, seq=event.seq, place=PLACES - 1)


class Place(NamedTuple):
    """A place in a job's events: all before `seq` was seen, and of `seq` itself what is at the first `told` places."""

    seq: int
    told: int


def place_of(text: str) -> Place:
    """Where an id stands; raises InvalidInput for one that we never gave."""
    _, counter = parse_event_id(text)
    seq, told = divmod(counter, PLACES)
    if seq < 1:
        raise InvalidInput("an event id of this contract is {ms}-{counter}")
    return Place(seq, told + 1)


def latest_id(job: Job) -> str:
    """The id after which nothing has happened yet."""
    return event_id(job.event_ms, job.event_seq * PLACES + PLACES - 1)


class Left(NamedTuple):
    """What a job leaves beside its result: files, and the last lines of its log."""

    artifacts: Sequence[dict[str, Any]] = ()
    logs: Sequence[str] = ()


def log_lines(events: Iterable[Event]) -> list[str]:
    """What was logged, as lines: when, what kind, where, and the message."""
    lines = [_log_line(event) for event in events if event.type in LOGS]
    return lines[-MOST_LOGS:]


def _log_line(event: Event) -> str:
    body = parsed(event.data)
    data: dict[str, Any] = body if isinstance(body, dict) else {}
    kind = str(data.get("level", "info")) if event.type == "log" else event.type
    return f"{utc(event.ms)} {kind} {event.step or 'Initialization'}: {data.get('message', '')}"


def told(event: Event, job: Job, left: Left = Left(), *, completes: str = "") -> list[Told]:  # noqa: B008 - a tuple
    """What the contract says of an event. `job` is as it is now; of an end it has the result or the error.

    `completes` is the stage that the event completes.
    """
    made = _told(event, job, left)
    first = OWN if event.type == "stage" or event.type in TERMINAL_EVENTS else 0
    placed = [(first + n, name, data) for n, (name, data) in enumerate(made)]
    if completes:
        placed.insert(0, (0, "step-status", _step(completes, "completed")))
    same = {"correlationId": job.correlation_id}
    return [Told(event.ms, event.seq, place, name, {**data, **same}) for place, name, data in placed]


def _told(event: Event, job: Job, left: Left) -> list[tuple[str, dict[str, Any]]]:
    step = event.step or "Initialization"
    body = parsed(event.data)
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
            return [("step-progress", {"step": step, "phase": phase_of(step).name, **more})]
        case "warning" | "waiting":
            return [("warning", {"message": str(data.get("message", "")), "step": step})]
        case "log" if data.get("level") in ("warning", "error"):
            return [("warning", {"message": str(data.get("message", "")), "step": step})]
        case "lease_lost":
            return [("warning", {"message": "the worker went silent; another one takes over", "step": step})]
        case "retrying":
            return [("error", {"message": str(data.get("message", "")), "step": step, "willRetry": True})]
    return _end(event, job, left)


def _end(event: Event, job: Job, left: Left) -> list[tuple[str, dict[str, Any]]]:
    """An end is a change of the status, too: that is told first, and then what came of it."""
    about = {"jobId": job.job_id}
    stage, percent = stage_of(job), whole(event.progress)
    match event.type:
        case "done":
            output = parsed(job.result) if job.result else None
            came = ("job-completed", {"status": "Done", **about, "artifacts": left.artifacts, "output": output})
            stage, percent = "Complete", 100
        case "error":
            came = ("job-failed", {"status": "Failed", **about, "stage": stage, **_failure(job), "logs": left.logs})
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
    return {"step": step, "status": status, "phase": phase_of(step).name}
