"""Steps that a job has for its use: its own, and those of the ended jobs that it resumes.

Which job that is stands in the store, written with the job itself. A job never takes over a step of another tenant or
of another task, whatever its record says.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from callsheet.kernel.contracts import RESUMABLE
from callsheet.kernel.errors import DuplicateJob, IllegalMove
from callsheet.kernel.intake import IS_UUID
from callsheet.kernel.job import RESERVED, RESUMED_FROM, Job, Json, NewJob, Status

from .quotas import slot_of

if TYPE_CHECKING:
    from callsheet.store.protocol import Store

LONGEST_CHAIN = 50
VERSION_AT = 14  # the place of a UUID's version in its text
_RESUMED = uuid.UUID("5be0a4c1-2f8e-4f0a-9d6b-7a3f1c9e8d20")


class Steps(NamedTuple):
    """The results of completed steps by name, and the jobs that they are from, the asking one first."""

    results: dict[str, Json]
    jobs: tuple[str, ...]


async def steps_of(store: Store, job: Job) -> Steps:
    """What a job may go on from. A step that it completed itself stands before one that it took over."""
    known = await store.checkpoints(job.job_id)
    results, jobs = _plain(known), [job.job_id]
    while RESUMED_FROM in known and len(jobs) < LONGEST_CHAIN:
        earlier = await _resumed(store, job, known[RESUMED_FROM])
        if earlier is None or earlier in jobs:
            break
        known = await store.checkpoints(earlier)
        results = {**_plain(known), **results}
        jobs.append(earlier)
    return Steps(results, tuple(jobs))


async def first_of(store: Store, job_id: str) -> str:
    """Return the id of the job that a job's credentials are bound to: the dead letter that it replays, else its own."""
    named = await named_by(store, job_id)
    return job_id if named is None else named


async def named_by(store: Store, job_id: str) -> str | None:
    """Return the id of the ended job that a job was made from, None where it was made from none.

    A job that was made from another has a UUID of version 5; for all others nothing is read.
    """
    if job_id[VERSION_AT] != "5":
        return None
    text = (await store.checkpoints(job_id)).get(RESUMED_FROM)
    return None if text is None else str(json.loads(text))


async def _resumed(store: Store, job: Job, text: Json) -> str | None:
    """The id of the job that a record names, if the asking job may have its steps."""
    try:
        job_id = json.loads(text)
    except ValueError:
        return None
    if not isinstance(job_id, str) or not IS_UUID(job_id):
        return None
    (earlier,) = await store.get([job_id])
    if earlier is None or earlier.requester_id != job.requester_id or earlier.kind != job.kind:
        return None
    return job_id


def _plain(known: dict[str, Json]) -> dict[str, Json]:
    return {name: data for name, data in known.items() if not name.startswith(RESERVED)}


def can_be_resumed(job: Job) -> bool:
    """Whether a job ended badly, of a contract that lets another one take over its steps.

    The limit of a concurrency key is not known any more when a job has ended: one with such a key cannot be resumed,
    unless that is the key of its tenant's quota, which the intake gives to each job.
    """
    badly = job.status.terminal and job.status is not Status.SUCCEEDED
    return badly and job.contract in RESUMABLE and job.concurrency_key in (None, slot_of(job.requester_id))


async def resume(store: Store, job: Job, enqueue: Callable[[NewJob], Awaitable[object]]) -> Job:
    """The job that goes on where an ended one stopped; `enqueue` makes it when it is first asked for.

    Raises IllegalMove where there is nothing to go on from, or where another job stands in its way.
    """
    if not can_be_resumed(job) or not (await steps_of(store, job)).results:
        raise IllegalMove(f"job {job.job_id} cannot be resumed: it did not end badly, or completed no step")
    new = resuming_job(job)
    with contextlib.suppress(DuplicateJob):  # it was asked for before
        await enqueue(new)
    (found,) = await store.get([new.job_id])
    if found is None or (await steps_of(store, found)).jobs[1:2] != (job.job_id,):
        raise IllegalMove(f"job {job.job_id} cannot be resumed now: another job has its unique key or its new id")
    return found


def resuming_job(job: Job) -> NewJob:
    """The job that resumes another: the same work with the same payload. It has one id, however often it is asked for.

    That id depends on the claim, so that a job that was brought back by hand and ended again can be resumed anew.
    """
    return NewJob(
        str(uuid.uuid5(_RESUMED, f"{job.job_id}:{job.claim_version}")),
        job.kind,
        job.payload,
        job.queue,
        job.priority,
        requester_id=job.requester_id,
        contract=job.contract,
        max_attempts=job.max_attempts,
        retry=job.retry,
        unique_key=job.unique_key,
        ttl_s=job.ttl_s,
        correlation_id=job.correlation_id,
        resumed_from=job.job_id,
    )
