"""Jobs that a worker asks for with a success. They are its parent's tenant's, in queues that the worker may fill."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from callsheet.engine.ids import new_ids
from callsheet.http.intake import reserved
from callsheet.http.problems import Problem
from callsheet.kernel.contracts import PAYLOAD_CHECKED, TASKS
from callsheet.kernel.errors import DependencyNotFound
from callsheet.kernel.intake import IS_UUID
from callsheet.kernel.job import NewJob, OnDependencyFailure
from callsheet.kernel.wire import encode

from .models import FollowUp

if TYPE_CHECKING:
    from callsheet.engine import Engine
    from callsheet.kernel.job import Job

    from .binding import Holder

DERIVED = 5  # the version of UUIDs that are made of names
SHARED = ("unique_key", "concurrency_key")  # names that all tenants of a store share


async def follow_ups_of(engine: Engine, worker: Holder, parent: Job, asked: Sequence[FollowUp]) -> tuple[NewJob, ...]:
    """The new jobs; raises Problem `forbidden`, or DependencyNotFound, for what is not the worker's or the tenant's."""
    for one in asked:
        worker.check_queue(one.queue, parent)
        _check_keys(worker, one)
        _check_id(one)
    made = tuple(_new_job(parent, one) for one in asked)
    await _check_dependencies(engine, parent, made)
    return made


def _check_keys(worker: Holder, asked: FollowUp) -> None:
    """A worker of some tenants sets no key: one that another tenant uses would hold up that tenant's jobs."""
    for name in SHARED:
        if worker.tenants is not None and getattr(asked, name) is not None:
            told = f"follow_ups: {name} is shared by all tenants, and this worker is bound to some; leave it out"
            raise Problem("forbidden", told, ok=False)


def _check_id(asked: FollowUp) -> None:
    """Ids that can be worked out beforehand are the system's own: of schedules, resumed jobs and replays."""
    if asked.job_id is not None and (not IS_UUID(asked.job_id) or uuid.UUID(asked.job_id).version == DERIVED):
        told = "follow_ups: job_id is a random UUID (version 4 or 7); leave it out, and the server makes one"
        raise Problem("validation_failed", told, ok=False)


async def _check_dependencies(engine: Engine, parent: Job, made: Sequence[NewJob]) -> None:
    """Another tenant's job is as unknown as one that does not exist."""
    siblings = {new.job_id for new in made}
    wanted = list({job_id for new in made for job_id in new.depends_on} - siblings)
    known = [job_id for job_id in wanted if IS_UUID(job_id)]
    found = await engine.store.get(known) if known else []
    mine = {job.job_id for job in found if job is not None and job.requester_id == parent.requester_id}
    if missing := [job_id for job_id in wanted if job_id not in mine]:
        told = f"depends_on: this tenant has no job {missing[0][:100]}; name jobs of the parent's own tenant"
        raise DependencyNotFound(told)


def _new_job(parent: Job, asked: FollowUp) -> NewJob:
    """A follow-up belongs to its parent's tenant, whatever the worker says. Raises Problem for a contract's task."""
    contract = TASKS.get(asked.task, "callsheet")
    if contract in PAYLOAD_CHECKED:
        raise reserved(asked.task)
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
