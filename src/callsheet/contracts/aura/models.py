"""The contract's models: a job in camelCase, with times, phase, and whether clients can resume it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from callsheet.engine.resuming import can_be_resumed
from callsheet.http.json_bodies import parse_json
from callsheet.kernel.contracts import AURA
from callsheet.kernel.job import Job, Status

Word = Literal["Queued", "Running", "Done", "Failed", "Canceled"]
COMPOSE = "compose"
STEPS = ("Script", "Voice", "Visuals")  # steps of compose, in order; a job can resume after each
FIRST_STAGE = {"Queued": "Queued", "Done": "Complete"}
OPEN = (Status.QUEUED, Status.RUNNING)
STATUSES = {
    "Queued": OPEN,
    "Running": OPEN,
    "Done": (Status.SUCCEEDED,),
    "Succeeded": (Status.SUCCEEDED,),
    "Failed": (Status.FAILED, Status.DEAD_LETTER),
    "Canceled": (Status.CANCELED,),
}
ENDED_BADLY = (Status.FAILED, Status.DEAD_LETTER)


class CreateBody(BaseModel):
    """A new live job."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        json_schema_extra={
            "examples": [{"task": "compose", "payload": {"script": "# Hello\n\n## One\n\nFirst scene."}}]
        },
    )
    task: str = Field(default="compose", min_length=1, max_length=255, pattern=r"^[^\x00-\x1f]+$")
    payload: dict[str, JsonValue] = Field(default={}, description="What the task takes; at most about 200 KB as JSON.")
    priority: int = Field(default=0, ge=-100, le=100)


class CancelBody(BaseModel):
    """The reason for cancelling a job."""

    model_config = ConfigDict(strict=True, extra="forbid")
    reason: str = Field(default="", max_length=1000)


class StepError(BaseModel):
    """An error, and the step that failed."""

    code: str
    message: str
    step: str
    retryable: bool | None = None


class JobBody(BaseModel):
    """The job's present state. Times are UTC in ISO 8601."""

    jobId: str  # noqa: N815 - the contract's names
    task: str
    status: Word
    stage: str
    phase: str
    percent: int
    createdUtc: str  # noqa: N815
    queuedUtc: str  # noqa: N815
    startedUtc: str | None  # noqa: N815
    completedUtc: str | None  # noqa: N815
    canceledUtc: str | None  # noqa: N815
    failedAt: str | None  # noqa: N815
    endedUtc: str | None  # noqa: N815
    canResume: bool  # noqa: N815
    lastCompletedStep: str | None  # noqa: N815
    errors: list[StepError]
    failureDetails: JsonValue  # noqa: N815
    output: JsonValue
    correlationId: str  # noqa: N815
    cancelRequested: bool  # noqa: N815
    lastEventId: str  # noqa: N815


class JobList(BaseModel):
    """A page of jobs, newest first."""

    jobs: list[JobBody]
    next: str | None


class Created(BaseModel):
    """The job is stored durably."""

    jobId: str  # noqa: N815
    status: Word
    eventsUrl: str  # noqa: N815
    correlationId: str  # noqa: N815


class Cancelled(BaseModel):
    """The job is being cancelled; the server removes its files."""

    jobId: str  # noqa: N815
    status: Word
    cleanupScheduled: bool  # noqa: N815
    correlationId: str  # noqa: N815


class Resumed(Created):
    """A new job that continues where the resumed job ended."""

    resumedFrom: str  # noqa: N815
    lastCompletedStep: str  # noqa: N815


def utc(ms: int) -> str:
    """Return a time in the contract's format."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def whole(percent: float) -> int:
    """Return progress as the contract's whole number, rounded down so that 100 means finished."""
    return int(percent)


def word_of(job: Job) -> str:
    """Return the contract's word for a job's status."""
    return AURA.word(job.status, job.stage, has_started=job.started_at is not None) or "Failed"


def states_of(words: Collection[str]) -> tuple[tuple[Status, ...], bool | None]:
    """Return the statuses of jobs with one of these words, and whether open jobs must have started (None: either).

    This reverses `word_of`: a job is Running from its first start to its end, including pauses between attempts.
    """
    has_begun = None if {"Queued", "Running"} <= set(words) else "Running" in words
    return tuple(dict.fromkeys(status for word in words for status in STATUSES[word])), has_begun if words else None


def stage_of(job: Job) -> str:
    """Return the job's stage; before the first stage and after success, the word for its status."""
    if job.status is Status.SUCCEEDED or not job.stage:
        return FIRST_STAGE.get(word_of(job), "Initialization")
    return job.stage


def last_step(checkpoints: Mapping[str, str]) -> str | None:
    """Return the last step of `compose` that is completed together with all earlier steps."""
    last = None
    for step in STEPS:
        if step not in checkpoints:
            break
        last = step
    return last


def errors_of(job: Job) -> list[dict[str, Any]]:
    """Return the job's errors; a successful retry leaves none."""
    body = parse_json(job.error) if job.error and job.status is not Status.SUCCEEDED else None
    if not isinstance(body, dict):
        return []
    error = {"code": str(body.get("code", "error")), "message": str(body.get("message", ""))}
    return [{**error, "step": stage_of(job), "retryable": body.get("retryable")}]


def job_body(job: Job, last_completed: str | None) -> dict[str, Any]:
    """Return a job of any contract in this contract's words."""
    stage, status = stage_of(job), job.status
    ended_at = utc(job.ended_at) if job.ended_at is not None else None
    return {
        "jobId": job.job_id,
        "task": job.kind,
        "status": word_of(job),
        "stage": stage,
        "phase": AURA.phase_of(stage).name,
        "percent": whole(job.progress),
        "createdUtc": utc(job.created_at),
        "queuedUtc": utc(job.created_at),
        "startedUtc": utc(job.started_at) if job.started_at is not None else None,
        "completedUtc": ended_at if status is Status.SUCCEEDED else None,
        "canceledUtc": ended_at if status is Status.CANCELED else None,
        "failedAt": ended_at if status in ENDED_BADLY else None,
        "endedUtc": ended_at,
        "canResume": can_resume(job, last_completed),
        "lastCompletedStep": last_completed,
        "errors": errors_of(job),
        "failureDetails": parse_json(job.error) if job.error and status in ENDED_BADLY else None,
        "output": parse_json(job.result) if job.result else None,
        "correlationId": job.correlation_id,
        "cancelRequested": job.cancel_requested_at is not None,
        "lastEventId": "",
    }


def can_resume(job: Job, last_completed: str | None) -> bool:
    """Return True if the job ended without success and has a completed step."""
    return last_completed is not None and can_be_resumed(job)
