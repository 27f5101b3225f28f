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

REFUSED = "~refused:"
FRESH = 2  # events of a job that was never handed back: queued, running
SET_ASIDE_MS = (1_000, 30_000)  # shortest and longest delay of a job offered to a worker that had refused it


def release(job: Job, worker_id: str, delay_ms: int, *, refused: bool) -> Settlement:
    """Return the settlement that hands a job back; with `refused`, a checkpoint records this worker's refusal."""
    settlement = commands.release(job, delay_ms=delay_ms)
    if refused and settlement.outcome is Outcome.RELEASED:
        return settlement._replace(checkpoint=(f"{REFUSED}{worker_id}", "true"))
    return settlement


async def set_aside(engine: Engine, worker_id: str, jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs that this worker has not refused; hand the refused ones back, each time with a longer delay."""
    kept, back = [], []
    for job in jobs:
        known = await engine.store.checkpoints(job.job_id) if job.event_seq > FRESH else {}
        if f"{REFUSED}{worker_id}" in known:
            delay_ms = int(pause_after(job.event_seq // 2 - FRESH, *SET_ASIDE_MS))
            back.append(commands.release(job, delay_ms=delay_ms))
        else:
            kept.append(job)
    if back:
        await engine.settle(back)
    return kept
