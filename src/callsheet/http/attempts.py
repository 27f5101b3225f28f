"""`/v1/jobs/{job_id}/attempts`: the attempts of a job, and its current lease."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path
from pydantic import BaseModel, Field, JsonValue
from starlette.requests import Request

from callsheet.kernel.identity import name_of
from callsheet.kernel.job import Attempt, Job, Status

from . import problems
from .auth import allowed
from .json_text import JsonAnswer, parsed
from .keys import Principal
from .site import site_of

ALWAYS = ("unauthorized", "forbidden", "too_many_requests", "store_unavailable")
Reader = Annotated[Principal, Depends(allowed("jobs:read"))]
JobId = Annotated[str, Path(description="The job's id.", examples=["0199f0c2-7f7a-7d51-b3cd-0d52b5f0f5b1"])]
Moment = Annotated[int, Field(description="Milliseconds since the epoch, by the store's clock.")]
router = APIRouter(tags=["jobs"])


class AttemptBody(BaseModel):
    """One execution of a job. `outcome` null: still running."""

    attempt_id: str
    attempt: int
    worker_id: str
    started_at: Moment
    ended_at: Moment | None
    outcome: str | None = Field(
        description="succeeded, failed, retried, dead_lettered, released, lease_lost or canceled; null while it runs"
    )
    error: JsonValue


class LeaseBody(BaseModel):
    """The job's current lease: which worker holds the job, and when the lease expires."""

    attempt_id: str
    worker_id: str
    lease_expires_at: Moment
    heartbeat_at: Moment | None


class AttemptList(BaseModel):
    """All attempts of a job, oldest first. `lease` null: no worker holds the job."""

    job_id: str
    attempts: list[AttemptBody]
    lease: LeaseBody | None


@router.get(
    "/v1/jobs/{job_id}/attempts",
    summary="Read a job's attempts",
    response_model=AttemptList,
    responses=problems.responses(*ALWAYS, "job_not_found"),
)
async def list_attempts(request: Request, job_id: JobId, who: Reader) -> JsonAnswer:
    """List the job's attempts with worker, times, outcome and error, and the lease of a running attempt."""
    engine = site_of(request).engine
    job = await engine.get(job_id, requester_id=who.sees)
    attempts = attempt_bodies(await engine.store.attempts(job_id))
    return JsonAnswer({"job_id": job_id, "attempts": attempts, "lease": lease_body(job)})


def attempt_bodies(attempts: Sequence[Attempt]) -> list[dict[str, Any]]:
    """Return attempts as JSON values."""
    return [
        {
            "attempt_id": str(attempt.claim_version),
            "attempt": attempt.attempt,
            "worker_id": name_of(attempt.worker_id),
            "started_at": attempt.started_at,
            "ended_at": attempt.ended_at,
            "outcome": attempt.outcome.value if attempt.outcome is not None else None,
            "error": parsed(attempt.error) if attempt.error else None,
        }
        for attempt in attempts
    ]


def lease_body(job: Job) -> dict[str, Any] | None:
    """Return the lease on a job as a JSON value, or None if no worker holds the job."""
    if job.status is not Status.RUNNING:
        return None
    return {
        "attempt_id": str(job.claim_version),
        "worker_id": name_of(job.worker_id or ""),
        "lease_expires_at": job.lease_expires_at,
        "heartbeat_at": job.heartbeat_at,
    }
