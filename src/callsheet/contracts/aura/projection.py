"""One source of events, two projections: the engine's events as this contract tells them.

An event of the engine becomes none, one or two of the contract's. Their ids are `{ms}-{counter}`, the counter made of
the event's own number and the place within it, so that every id is unique, rises, and says where to go on.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from callsheet.http.json_text import parsed
from callsheet.kernel.errors import InvalidInput
from callsheet.kernel.job import Event, Job
from callsheet.kernel.progress import phase_of
from callsheet.kernel.wire import event_id, parse_event_id

from .models import errors_of, stage_of

PLACES = 4  # of the contract's events within one of the engine's
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
    """An event in the contract's words."""

    id: str
    type: str
    data: dict[str, Any]


class Place(NamedTuple):
    """A place in a job's events: all before `seq`, and of `seq` itself the first `told`."""

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


def told(event: Event, job: Job, artifacts: list[dict[str, Any]] | None = None) -> list[Told]:
    """What the contract says of an event. `job` is as it is now; of an end it has the result or the error."""
    made = _told(event, job, artifacts or [])
    same = {"correlationId": job.correlation_id}
    return [
        Told(event_id(event.ms, event.seq * PLACES + n), name, {**data, **same}) for n, (name, data) in enumerate(made)
    ]


def _told(event: Event, job: Job, artifacts: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    step = event.step or "Initialization"
    body = parsed(event.data)
    data: dict[str, Any] = body if isinstance(body, dict) else {}
    match event.type:
        case "queued":
            return [("job-status", {"status": "Queued", "stage": "Queued", "percent": event.progress})]
        case "running" | "requeued" | "released" | "cancel_requested":
            return [("job-status", {"status": "Running", "stage": step, "percent": event.progress})]
        case "stage":
            return [
                ("step-status", _step(step, "started")),
                ("job-status", {"status": "Running", "stage": step, "percent": event.progress}),
            ]
        case "checkpoint" if not step.startswith("~"):
            return [("step-status", _step(step, "completed"))]
        case "progress":
            more = {"progressPct": event.progress, "message": str(data.get("message", ""))}
            return [("step-progress", {"step": step, "phase": phase_of(step).name, **more})]
        case "warning":
            return [("warning", {"message": str(data.get("message", "")), "step": step})]
        case "log" if data.get("level") in ("warning", "error"):
            return [("warning", {"message": str(data.get("message", "")), "step": step})]
        case "lease_lost":
            return [("warning", {"message": "the worker went silent; another one takes over", "step": step})]
        case "retrying":
            return [("error", {"message": str(data.get("message", "")), "step": step, "willRetry": True})]
    return _end(event, job, artifacts)


def _end(event: Event, job: Job, artifacts: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    about = {"jobId": job.job_id}
    match event.type:
        case "done":
            output = parsed(job.result) if job.result else None
            return [("job-completed", {"status": "Done", **about, "artifacts": artifacts, "output": output})]
        case "error":
            errors = errors_of(job)
            message = errors[0]["message"] if errors else "the job failed"
            return [
                (
                    "job-failed",
                    {
                        "status": "Failed",
                        **about,
                        "stage": stage_of(job),
                        "errors": errors,
                        "errorMessage": message,
                        "logs": f"/v1/jobs/{job.job_id}/log",
                    },
                )
            ]
        case "canceled":
            message = job.cancel_reason or "the job was cancelled"
            return [("job-cancelled", {"status": "Canceled", **about, "stage": stage_of(job), "message": message})]
    return []


def _step(step: str, status: str) -> dict[str, Any]:
    return {"step": step, "status": status, "phase": phase_of(step).name}
