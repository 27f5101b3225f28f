"""Follow-up jobs, created with a success. They belong to the parent's tenant, in queues that the worker may fill."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from callsheet.engine.ids import new_ids
from callsheet.http.batcher import reserved_task_problem
from callsheet.http.problems import Problem
from callsheet.kernel.contracts import PAYLOAD_CHECKED, TASKS
from callsheet.kernel.errors import DependencyNotFound
from callsheet.kernel.job import NewJob, OnDependencyFailure
from callsheet.kernel.new_jobs import IS_UUID
from callsheet.kernel.wire import encode

from .models import FollowUp

if TYPE_CHECKING:
    from callsheet.engine import Engine
    from callsheet.kernel.job import Job

    from .binding import Holder

DERIVED = 5  # UUID version for ids derived from names
SHARED = ("unique_key", "concurrency_key")  # names that all tenants of a store share


async def follow_ups_of(engine: Engine, worker: Holder, parent: Job, asked: Sequence[FollowUp]) -> tuple[NewJob, ...]:
    """Return the new jobs; raises Problem `forbidden` for a foreign queue, DependencyNotFound for a foreign job."""
    for one in asked:
        worker.check_queue(one.queue, parent)
        _check_keys(worker, one)
        _check_id(one)
    made = tuple(_new_job(parent, one) for one in asked)
    await _check_dependencies(engine, parent, made)
    return made


def _check_keys(worker: Holder, asked: FollowUp) -> None:
    """Raise Problem if a tenant-bound worker sets a shared key: the key could block another tenant's jobs."""
    for name in SHARED:
        if worker.tenants is not None and getattr(asked, name) is not None:
            told = f"follow_ups: {name} is shared by all tenants, and this worker is bound to some; leave it out"
            raise Problem("forbidden", told, ok=False)


def _check_id(asked: FollowUp) -> None:
    """Raise Problem unless the id is a random UUID: schedules, resumed jobs and replays use predictable ids."""
    if asked.job_id is not None and (not IS_UUID(asked.job_id) or uuid.UUID(asked.job_id).version == DERIVED):
        told = "follow_ups: job_id is a random UUID (version 4 or 7); leave it out, and the server makes one"
        raise Problem("validation_failed", told, ok=False)


async def _check_dependencies(engine: Engine, parent: Job, made: Sequence[NewJob]) -> None:
    """Raise DependencyNotFound for unknown dependencies; another tenant's job counts as unknown."""
    siblings = {new.job_id for new in made}
    wanted = list({job_id for new in made for job_id in new.depends_on} - siblings)
    known = [job_id for job_id in wanted if IS_UUID(job_id)]
    found = await engine.store.get(known) if known else []
    mine = {job.job_id for job in found if job is not None and job.requester_id == parent.requester_id}
    if missing := [job_id for job_id in wanted if job_id not in mine]:
        told = f"depends_on: this tenant has no job {missing[0][:100]}; name jobs of the parent's own tenant"
        raise DependencyNotFound(told)


def _new_job(parent: Job, asked: FollowUp) -> NewJob:
    """Return the follow-up as a new job of the parent's tenant. Raises Problem if a contract reserves the task."""
    contract = TASKS.get(asked.task, "callsheet")
    if contract in PAYLOAD_CHECKED:
        raise reserved_task_problem(asked.task)
    given = asked.model_dump(exclude={"job_id", "task", "payload", "depends_on", "on_dependency_failure"})
    return NewJob(
        job_id=asked.job_id or new_ids(1)[0],
        kind=asked.task,
        payload=encode(asked.payload if asked.payload is not None else {}),
        requester_id=parent.requester_id,
        contract=contract,
        depends_on=tuple(asked.depends_on),
        on_dependency_failure=OnDependencyFailure(asked.on_dependency_failure),
        **{**given, "correlation_id": asked.correlation_id or parent.correlation_id or parent.job_id},
    )
