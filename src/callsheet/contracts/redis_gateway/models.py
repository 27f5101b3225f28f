"""The gateway's request and answer models."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from callsheet.http.json_bodies import parse_json
from callsheet.kernel.contracts import REDIS_GATEWAY
from callsheet.kernel.job import Job, Status
from callsheet.kernel.wire import event_id

if TYPE_CHECKING:
    from collections.abc import Mapping

Word = Literal["queued", "running", "done", "error", "canceled"]
STATUSES: Mapping[str, tuple[Status, ...]] = {
    "queued": (Status.QUEUED,),
    "running": (Status.RUNNING,),
    "done": (Status.SUCCEEDED,),
    "error": (Status.FAILED, Status.DEAD_LETTER),
    "canceled": (Status.CANCELED,),
}


class CancelRequest(BaseModel):
    """The reason for cancelling a job."""

    model_config = ConfigDict(strict=True, extra="forbid")
    reason: str = Field(default="", max_length=1000)


class Links(BaseModel):
    """URLs for the job's state, events and cancellation."""

    self: str
    events: str
    cancel: str


class Receipt(BaseModel):
    """The job is stored durably."""

    job_id: str
    task: str
    status: Word
    ttl_s: int
    links: Links
    created: bool = Field(default=True, description="False: an earlier job has the unique key; told only then.")


class JobBody(BaseModel):
    """The job's present state."""

    job_id: str
    task: str
    payload: JsonValue
    status: Word
    created_ts: int = Field(description="Milliseconds since the epoch.")
    updated_ts: int
    ttl_s: int | None
    result: JsonValue
    error: JsonValue
    progress: float
    step: str
    attempts: int
    max_attempts: int
    queue: str
    priority: int
    correlation_id: str
    cancel_reason: str | None
    last_event_id: str
    state: str = Field(
        description="As `status`, but `error` is told as `failed` or `dead_letter`, `done` as `succeeded`."
    )
    contract: str
    requester_id: str
    partial: bool = Field(default=False, description="Payload and result were left out; GET of the job has them.")


class JobList(BaseModel):
    """A page of jobs, newest first."""

    jobs: list[JobBody]
    next: str | None = Field(description="Send it as `cursor` for the next page.")


class EventBody(BaseModel):
    """One event, equal to the stream's `data`."""

    id: str
    job_id: str
    seq: int
    type: str
    ts: int
    step: str
    progress: float
    data: JsonValue


class EventList(BaseModel):
    """Events after a given event id."""

    events: list[EventBody]
    last_event_id: str
    ended: bool = Field(description="True when no more will come.")


class Snapshot(BaseModel):
    """The `data` of a stream's `hello` and `reset`."""

    job: JobBody
    last_event_id: str


class Snapshots(BaseModel):
    """The `data` of `hello` and `reset` on a stream of many jobs."""

    jobs: list[JobBody]


class Ticket(BaseModel):
    """A ticket for EventSource, which cannot send a key. Valid for a minute and a single use."""

    ticket: str
    url: str
    expires_in_s: int


def receipt(job_id: str, task: str, ttl_s: int, status: str = "queued", *, created: bool = True) -> str:
    """Return the answer to a new job as text, which is stored for idempotent repeats.

    Without `created` it is the answer about an earlier job that has the same unique key.
    """
    path = f"/v1/jobs/{job_id}"
    links = {"self": path, "events": f"{path}/events", "cancel": f"{path}/cancel"}
    body = {"job_id": job_id, "task": task, "status": status, "ttl_s": ttl_s, "links": links}
    return json.dumps(body if created else {**body, "created": False})


def job_body(job: Job) -> dict[str, Any]:
    """Return a job of any contract in the gateway's words."""
    return {
        "job_id": job.job_id,
        "task": job.kind,
        "payload": _decode(job.payload),
        "status": REDIS_GATEWAY.words[job.status],
        "created_ts": job.created_at,
        "updated_ts": job.updated_at,
        "ttl_s": job.ttl_s,
        "result": _decode(job.result),
        "error": _decode(job.error),
        "progress": job.progress,
        "step": job.stage,
        "attempts": job.attempt_count,
        "max_attempts": job.max_attempts,
        "queue": job.queue,
        "priority": job.priority,
        "correlation_id": job.correlation_id,
        "cancel_reason": job.cancel_reason,
        "last_event_id": event_id(job.event_ms, job.event_seq),
        "state": job.status.value,
        "contract": job.contract,
        "requester_id": job.requester_id,
    }


def list_entry(job: Job, *, brief: bool) -> dict[str, Any]:
    """Return a job as an entry of a job list; `brief` leaves out payload and result."""
    return {**job_body(job._replace(payload="", result=None)), "partial": True} if brief else job_body(job)


def snapshot(job: Job, most: int = 64 * 1024) -> dict[str, Any]:
    """Return a job for a stream. A large payload or result is left out, marked by `partial`; GET returns both."""
    if len(job.payload) + len(job.result or "") <= most:
        return {**job_body(job), "partial": False}
    return {**job_body(job._replace(payload="", result=None)), "partial": True}


def _decode(text: str | None) -> Any:
    """Return a field's JSON value; text that is not JSON (from a foreign worker) becomes `_raw`."""
    return parse_json(text) if text else None
