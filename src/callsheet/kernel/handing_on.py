"""Offer a job to other workers if the worker that claimed it lacks the task: no attempt counts while patience lasts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .commands import dead_letter, release
from .job import NewEvent, Status
from .lifecycle import MAX_NAME
from .retry import Backoff, JobError, waits_of
from .wire import clean, encode

if TYPE_CHECKING:
    from .job import Job
    from .settlement import Settlement

UNKNOWN_TASK = "unknown_task"
BACKOFF = Backoff(base_ms=1_000, cap_ms=15_000)
"""The pauses between two offers, so that the worker without the task does not claim the job again at once."""


def hand_on(job: Job, *, patience_ms: int, rand: float) -> Settlement:
    """Return a job to the queue because this worker lacks its task: no attempt is counted, other workers may claim it.

    After `patience_ms` of such waits in all since its last failure, the job becomes a dead letter.
    """
    before = waits_of(job)
    times, passed_ms = before.get("handed_on", 0), before.get("handed_on_ms", 0)
    if passed_ms >= patience_ms:
        return dead_letter(job, JobError(UNKNOWN_TASK, _what_to_do(job, passed_ms)))
    delay_ms = BACKOFF.delay_ms(times + 1, rand)
    back = release(job, delay_ms=delay_ms)
    if back.status is not Status.QUEUED:
        return back
    worker = clean(f"a worker with the task {job.kind!r}", MAX_NAME)
    message = f"waiting for {worker}: the one that took the job has none"
    counts = {"handed_on": times + 1, "handed_on_ms": passed_ms + delay_ms, "patience_ms": patience_ms}
    event = NewEvent("waiting", job.stage, encode({"for": worker, "message": message, "delay_ms": delay_ms}))
    error = JobError(UNKNOWN_TASK, message, details=encode({**before, **counts}))
    return back._replace(event=event, error=error.json_of_wait(worker))


def _what_to_do(job: Job, passed_ms: int) -> str:
    wait = f", and no other took it within {passed_ms // 1000} s" if passed_ms else ""
    advice = f"start a worker of the queue {job.queue!r} that has it, then retry the job"
    return f"no task {job.kind!r} is declared in this worker{wait}; {advice}"
