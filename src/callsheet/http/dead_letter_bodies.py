"""Request and response bodies of `/v1/dead-letters`: filters, and dead letters as JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

from callsheet.engine import dead_letters
from callsheet.engine.dead_letters import Wanted
from callsheet.kernel.job import Job

from .attempts import AttemptBody, Moment
from .json_text import parsed
from .keys import Principal

NO_NUL = r"^[^\x00]*$"  # PostgreSQL cannot store NUL in text
CURSOR = r"^[0-9]{1,18}$"
Text = Annotated[str, Field(max_length=255, pattern=NO_NUL)]
LATEST_MS = 253_402_300_799_999
Which = Literal["dead_letter", "failed", "both"]


def _ms(moment: Any) -> Any:
    """Convert an RFC 3339 time to milliseconds; other values are returned unchanged."""
    if not isinstance(moment, str) or moment.isdecimal():
        return moment
    found = datetime.fromisoformat(moment)  # raises ValueError, which pydantic reports
    if found.tzinfo is None:
        raise ValueError("a moment has a time zone: 2030-01-31T08:00:00Z")
    return round(found.timestamp() * 1000)


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

    def wanted(self, who: Principal) -> Wanted:
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
    found = dead_letters.diagnose(job)
    return {
        "job_id": job.job_id,
        "task": job.kind,
        "queue": job.queue,
        "contract": job.contract,
        "requester_id": job.requester_id,
        "status": job.status.value,
        "error": parsed(job.error) if job.error else None,
        "error_class": found.error_class,
        "advice": found.advice,
        "attempts": job.attempt_count,
        "max_attempts": job.max_attempts,
        "lease_losses": job.lease_losses,
        "priority": job.priority,
        "correlation_id": job.correlation_id,
        "created_at": job.created_at,
        "started_at": job.started_at,
        "ended_at": job.ended_at,
    }
