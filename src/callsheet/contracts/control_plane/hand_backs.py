"""Claimed jobs that go back: those with an unusable payload, and those that this worker has refused before.

An unusable payload ends its own job and fails no claim. While the object store is down, or denies access to the server,
affected jobs are released without counting an attempt. A worker that cannot run a job refuses it once; the server then
offers the job to other workers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from callsheet.kernel import commands
from callsheet.kernel.errors import CallsheetError, StoreError
from callsheet.kernel.job import Job, Outcome
from callsheet.kernel.retry import JobError
from callsheet.kernel.settlement import Settlement
from callsheet.kernel.wire import clean, decode
from callsheet.net.backoff import pause_after
from callsheet.objects import InvalidKey, KeyConflict, ObjectNotFound, ObjectsError

from .artifacts import inputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from callsheet.engine import Engine
    from callsheet.http.state import ServerState
    from callsheet.kernel.job import Job
    from callsheet.kernel.settlement import Settlement

log = logging.getLogger("callsheet.http")
UNUSABLE = "payload_unusable"
DEEPEST = 100  # nesting levels of a payload: the JSON parsers of some clients allow few more
REST_MS = 5_000  # delay before the object store is tried again
LONG_REST_MS = 60_000
OF_THE_KEY = (InvalidKey, KeyConflict, ObjectNotFound)


async def contents_of(state: ServerState, job: Job) -> dict[str, Any]:
    """Return a job's payload and signed input URLs for the claim's answer; raises for an unusable payload."""
    payload = decode(job.payload)
    _check_depth(job.payload, payload)
    return {"payload": payload, "inputs": await inputs(state, job)}


async def usable(state: ServerState, jobs: Sequence[Job]) -> dict[str, dict[str, Any]]:
    """Return the contents of usable jobs by id. Other jobs become dead letters; in a storage outage they go back."""
    contents: dict[str, dict[str, Any]] = {}
    ends: list[Settlement] = []
    for job in jobs:
        try:
            contents[job.job_id] = await contents_of(state, job)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a payload does, it does to its own job
            ends.append(_release(job, error) if _is_outage(error) else _end(job, error))
    if ends:
        await state.engine.settle(ends)
    return contents


def _is_outage(error: Exception) -> bool:
    """Return True if the error comes from the object store or the server's settings, not from a key in the payload."""
    return isinstance(error, OSError) or (isinstance(error, ObjectsError) and not isinstance(error, OF_THE_KEY))


def _release(job: Job, error: Exception) -> Settlement:
    log.warning("job %s goes back: its inputs cannot be signed now (%s)", job.job_id, error)
    return commands.release(job, delay_ms=REST_MS)


def _end(job: Job, error: Exception) -> Settlement:
    """Return the settlement that ends the job: dead letter if its contract allows that, else failure, else release."""
    log.warning("job %s is a dead letter: no worker can be given its payload (%s)", job.job_id, error)
    reason = clean(f"no worker can be given this payload: {str(error) or type(error).__name__}", 1_000)
    problem = JobError(UNUSABLE, reason, retryable=False)
    ways: list[Callable[[], Settlement]] = [
        lambda: commands.dead_letter(job, problem),
        lambda: commands.fail(job, problem, rand=0.0),
    ]
    for way in ways:
        try:
            return way()
        except CallsheetError as refused:
            log.warning("job %s: %s", job.job_id, refused)
    return commands.release(job, delay_ms=LONG_REST_MS)


def _check_depth(text: str, value: Any) -> None:
    """Raise ValueError if the payload is nested too deeply. Texts with few brackets pass without parsing."""
    if text.count("[") + text.count("{") <= DEEPEST:
        return
    level = [value]
    for _ in range(DEEPEST):
        level = [part for one in level if isinstance(one, dict | list) for part in _parts(one)]
        if not level:
            return
    raise ValueError(f"it is nested more than {DEEPEST} levels deep")


def _parts(value: dict[str, Any] | list[Any]) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value


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
