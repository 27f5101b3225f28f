"""`/v1/jobs/{job_id}/attempts` and `/v1/jobs/{job_id}/state`: a job's attempts, lease and present state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field, JsonValue
from starlette.requests import Request

from callsheet.engine import dead_letters
from callsheet.http import problems
from callsheet.http.json_bodies import JsonAnswer, parse_json
from callsheet.http.parameters import ALWAYS, JobId, Moment, Reader
from callsheet.http.state import state_of
from callsheet.kernel import commands
from callsheet.kernel.contracts import lifecycle_of
from callsheet.kernel.errors import CallsheetError
from callsheet.kernel.job import Attempt, Job, Status
from callsheet.kernel.lifecycle import Lifecycle
from callsheet.kernel.workers import name_of

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
    engine = state_of(request).engine
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
            "error": parse_json(attempt.error) if attempt.error else None,
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


class StateBody(BaseModel):
    """A job's state in the words of its contract. `waits` null: the job is ready, running or ended."""

    job_id: str
    requester_id: str
    contract: str
    status: str = Field(description="queued, running, succeeded, failed, dead_letter or canceled")
    word: str | None = Field(description="The contract's own word for it.")
    stage: str
    stages: list[str] | None = Field(
        description="The contract's stages in their order; null where a task names its own."
    )
    phase: str | None
    waits: str | None = Field(description="What it waits for: delay, dependency, slot or paused.")
    run_at: Moment
    blocked_by: int = Field(description="Jobs that must end first.")
    created_at: Moment
    started_at: Moment | None
    ended_at: Moment | None
    cancel_requested_at: Moment | None
    lease_losses: int
    lease: LeaseBody | None
    error_class: str | None
    advice: str | None = Field(description="What to do about its error.")
    can_cancel: bool
    can_retry: bool = Field(description="`POST /v1/dead-letters/{job_id}/replay` would bring it back.")


@router.get(
    "/v1/jobs/{job_id}/state",
    summary="How a job stands",
    response_model=StateBody,
    responses=problems.responses(*ALWAYS, "job_not_found"),
)
async def job_state(request: Request, job_id: JobId, who: Reader) -> JsonAnswer:
    """Read the job's stage, its reason to wait, its lease, advice about its error, and the actions allowed now."""
    engine = state_of(request).engine
    job = await engine.get(job_id, requester_id=who.sees)
    is_paused = job.status is Status.QUEUED and job.queue in await engine.store.paused_queues()
    can_retry = dead_letters.can_replay(job)
    return JsonAnswer(state_body(job, is_paused=is_paused, can_retry=can_retry))


def state_body(job: Job, *, is_paused: bool, can_retry: bool) -> dict[str, Any]:
    """Return a job's state as a JSON value."""
    lifecycle = lifecycle_of(job.contract)
    ended_badly = job.status in dead_letters.ENDED_BADLY
    diagnosis = dead_letters.diagnose(job) if ended_badly else None
    return {
        "job_id": job.job_id,
        "requester_id": job.requester_id,
        "contract": job.contract,
        "status": job.status.value,
        "word": lifecycle.word_of(job),
        "stage": job.stage,
        "stages": _stages(lifecycle),
        "phase": lifecycle.phase_of(job.stage).name if lifecycle.phases and job.stage else None,
        "waits": _waits(job, is_paused=is_paused),
        "run_at": job.run_at,
        "blocked_by": job.blocked_by,
        "created_at": job.created_at,
        "started_at": job.started_at,
        "ended_at": job.ended_at,
        "cancel_requested_at": job.cancel_requested_at,
        "lease_losses": job.lease_losses,
        "lease": lease_body(job),
        "error_class": diagnosis.error_class if diagnosis else None,
        "advice": diagnosis.advice if diagnosis else None,
        "can_cancel": not job.status.terminal
        and job.cancel_requested_at is None
        and _allows(lambda: commands.request_cancel(job, "")),
        "can_retry": can_retry,
    }


def _stages(lifecycle: Lifecycle) -> list[str] | None:
    if lifecycle.phases:
        return [phase.name for phase in lifecycle.phases]
    return None if lifecycle.stages is None else list(lifecycle.stages)


def _waits(job: Job, *, is_paused: bool) -> str | None:
    if job.status is not Status.QUEUED:
        return None
    return job.held.value if job.held is not None else "paused" if is_paused else None


def _allows(command: Callable[[], object]) -> bool:
    try:
        command()
    except CallsheetError:
        return False
    return True
