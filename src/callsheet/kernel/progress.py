"""Progress that only rises, timestamps in order, and the phases of stages."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .errors import InvalidInput
from .job import Status

if TYPE_CHECKING:
    from .job import Job


def raised(current: float, asked: float) -> float:
    """Return the progress after a report: clamped to 0–100, rounded to two decimals, never below `current`."""
    if asked != asked:  # noqa: PLR0124 - the one value that differs from itself
        message = "progress is not a number; report a percentage from 0 to 100"
        raise InvalidInput(message)
    return max(current, round(min(100.0, max(0.0, float(asked))), 2))


class Phase(NamedTuple):
    """A phase of the job as readers see it, with its range in percent; None for an unknown range."""

    name: str
    low: int | None
    high: int | None


PLAN = Phase("plan", 0, 15)
TTS = Phase("tts", 15, 35)
VISUALS = Phase("visuals", 35, 65)
COMPOSE = Phase("compose", 65, 85)
RENDER = Phase("render", 85, 100)
COMPLETE = Phase("complete", 100, 100)
PROCESSING = Phase("processing", None, None)

PHASES = {
    **dict.fromkeys(("initialization", "queued", "script", "planning", "brief"), PLAN),
    **dict.fromkeys(("tts", "audio", "voice"), TTS),
    **dict.fromkeys(("visuals", "images", "assets"), VISUALS),
    **dict.fromkeys(("composition", "timeline", "compose"), COMPOSE),
    **dict.fromkeys(("rendering", "render", "encode"), RENDER),
    **dict.fromkeys(("complete", "done"), COMPLETE),
}

RESUMABLE_STAGES = frozenset({"script", "voice", "visuals"})


def phase_of(stage: str) -> Phase:
    """Return the phase of a stage, ignoring case; `processing` for an unknown stage."""
    return PHASES.get(stage.lower(), PROCESSING)


def timeline_faults(job: Job) -> list[str]:
    """Return the faults in a job's timestamps: created ≤ started ≤ ended, an end time exactly for terminal jobs."""
    faults: list[str] = []
    if job.started_at is not None and job.started_at < job.created_at:
        faults.append("started before it was created")
    if job.ended_at is not None and job.ended_at < (job.started_at or job.created_at):
        faults.append("ended before it started")
    if (job.ended_at is not None) is not job.status.terminal:
        faults.append("ended_at must be set exactly when the status is terminal")
    if job.status is Status.RUNNING and job.lease_expires_at is None:
        faults.append("running without a lease")
    if job.updated_at < job.created_at:
        faults.append("updated before it was created")
    return faults
