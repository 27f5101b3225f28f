"""Refused jobs: a worker that cannot run a job refuses it once, and the server offers the job to other workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callsheet.kernel import commands
from callsheet.kernel.job import Job, Outcome
from callsheet.kernel.settlement import Settlement
from callsheet.net.backoff import pause_after

if TYPE_CHECKING:
    from collections.abc import Sequence

    from callsheet.engine import Engine

REFUSAL = "~refused:"
FRESH = 2  # events of a job that was never handed back: queued, running
SET_ASIDE_MS = (1_000, 30_000)  # shortest and longest delay of a job offered to a worker that had refused it


def release(job: Job, worker_id: str, delay_ms: int, *, is_refusal: bool) -> Settlement:
    """Return the settlement that hands a job back; with `refused`, a checkpoint records this worker's refusal."""
    settlement = commands.release(job, delay_ms=delay_ms)
    if is_refusal and settlement.outcome is Outcome.RELEASED:
        return settlement._replace(checkpoint=(f"{REFUSAL}{worker_id}", "true"))
    return settlement


async def set_aside(engine: Engine, worker_id: str, jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs that this worker has not refused; hand the refused ones back, each time with a longer delay."""
    usable, back = [], []
    for job in jobs:
        checkpoints = await engine.store.checkpoints(job.job_id) if job.event_seq > FRESH else {}
        if f"{REFUSAL}{worker_id}" in checkpoints:
            delay_ms = int(pause_after(job.event_seq // 2 - FRESH, *SET_ASIDE_MS))
            back.append(commands.release(job, delay_ms=delay_ms))
        else:
            usable.append(job)
    if back:
        await engine.settle(back)
    return usable
