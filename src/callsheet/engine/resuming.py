"""The steps available to a job: its own steps and those of resumed jobs.

The store records the resumed job together with the new job. A job never takes over a step of another tenant or of
another task, whatever its record says.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from callsheet.kernel.contracts import RESUMABLE
from callsheet.kernel.errors import DuplicateJob, IllegalMove
from callsheet.kernel.job import RESERVED_PREFIX, RESUMED_FROM, Job, Json, NewJob, Status
from callsheet.kernel.new_jobs import IS_UUID
from callsheet.store.protocol import Store

from .quotas import slot_of

LONGEST_CHAIN = 50
VERSION_AT = 14  # the index of the version digit in a UUID's text
_NAMESPACE = uuid.UUID("5be0a4c1-2f8e-4f0a-9d6b-7a3f1c9e8d20")


class Steps(NamedTuple):
    """The results of completed steps by name, and the jobs that completed them, the requesting job first."""

    results: dict[str, Json]
    jobs: tuple[str, ...]


async def steps_of(store: Store, job: Job) -> Steps:
    """Return the steps that a job may continue from. The job's own steps take precedence over inherited ones."""
    checkpoints = await store.checkpoints(job.job_id)
    results, jobs = _plain(checkpoints), [job.job_id]
    while RESUMED_FROM in checkpoints and len(jobs) < LONGEST_CHAIN:
        earlier = await _resumable_id(store, job, checkpoints[RESUMED_FROM])
        if earlier is None or earlier in jobs:
            break
        checkpoints = await store.checkpoints(earlier)
        results = {**_plain(checkpoints), **results}
        jobs.append(earlier)
    return Steps(results, tuple(jobs))


async def first_of(store: Store, job_id: str) -> str:
    """Return the id that a job's credentials are bound to: the dead letter that it replays, else its own id."""
    earlier = await named_by(store, job_id)
    return job_id if earlier is None else earlier


async def named_by(store: Store, job_id: str) -> str | None:
    """Return the id of the ended job that this job copies or resumes, or None.

    Copies and resuming jobs have a UUID of version 5; jobs with other ids cost no read.
    """
    if job_id[VERSION_AT] != "5":
        return None
    text = (await store.checkpoints(job_id)).get(RESUMED_FROM)
    return None if text is None else str(json.loads(text))


async def _resumable_id(store: Store, job: Job, text: Json) -> str | None:
    """Return the job id in a record, if the requesting job may use that job's steps."""
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


def _plain(checkpoints: dict[str, Json]) -> dict[str, Json]:
    return {name: data for name, data in checkpoints.items() if not name.startswith(RESERVED_PREFIX)}


def can_be_resumed(job: Job) -> bool:
    """Return whether a job ended badly and its contract lets another job take over its steps.

    The limit of a concurrency key is unknown after a job's end: a job with such a key cannot be resumed, unless the key
    is its tenant's quota key, which the intake gives to each job.
    """
    badly = job.status.terminal and job.status is not Status.SUCCEEDED
    return badly and job.contract in RESUMABLE and job.concurrency_key in (None, slot_of(job.requester_id))


async def resume(store: Store, job: Job, enqueue: Callable[[NewJob], Awaitable[object]]) -> Job:
    """Return the job that continues an ended job; `enqueue` creates it on the first request.

    Raises IllegalMove if there is no completed step, or if another job has the key or id.
    """
    if not can_be_resumed(job) or not (await steps_of(store, job)).results:
        raise IllegalMove(f"job {job.job_id} cannot be resumed: it did not end badly, or completed no step")
    new = resuming_job(job)
    with contextlib.suppress(DuplicateJob):  # an earlier request made the job
        await enqueue(new)
    (resuming,) = await store.get([new.job_id])
    if resuming is None or (await steps_of(store, resuming)).jobs[1:2] != (job.job_id,):
        raise IllegalMove(f"job {job.job_id} cannot be resumed now: another job has its unique key or its new id")
    return resuming


def resuming_job(job: Job) -> NewJob:
    """Return the job that resumes another: the same work, payload and, for repeated requests, the same id.

    The id depends on the claim, so that a job that an operator requeued and that ended again can be resumed anew.
    """
    return NewJob(
        str(uuid.uuid5(_NAMESPACE, f"{job.job_id}:{job.claim_version}")),
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
