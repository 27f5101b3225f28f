"""Follow-up jobs, created with a success: whose they are, in which queues, and how many a worker may create.

They belong to the parent's tenant. A tenant-bound worker may create as many as the tenant's remaining quota of queued
jobs. One is always allowed in place of its parent, so that a running job can always end. Each process decides the
requests of one tenant one after another, so that each request counts the jobs of earlier requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from callsheet.engine.ids import new_ids
from callsheet.engine.stored import quota_exceeded
from callsheet.http.batcher import reserved_task_problem
from callsheet.http.problems import Problem
from callsheet.http.state import PerServer, ServerState
from callsheet.kernel.contracts import PAYLOAD_CHECKED, TASKS
from callsheet.kernel.errors import DependencyNotFound
from callsheet.kernel.job import NewJob, OnDependencyFailure
from callsheet.kernel.new_jobs import IS_UUID
from callsheet.kernel.wire import encode

from .models import FollowUp

if TYPE_CHECKING:
    from callsheet.engine import Engine
    from callsheet.engine.quotas import Quotas
    from callsheet.kernel.job import Job

    from .binding import Holder


DERIVED_VERSION = 5  # UUID version for ids derived from names
SHARED_KEYS = ("unique_key", "concurrency_key")  # names that all tenants of a store share


async def follow_ups_of(
    engine: Engine, worker: Holder, parent: Job, requests: Sequence[FollowUp]
) -> tuple[NewJob, ...]:
    """Return the new jobs; raises Problem `forbidden` for a foreign queue, DependencyNotFound for a foreign job."""
    for one in requests:
        worker.check_queue(one.queue, parent)
        _check_keys(worker, one)
        _check_id(one)
    jobs = tuple(_new_job(parent, one) for one in requests)
    await _check_dependencies(engine, parent, jobs)
    return jobs


def _check_keys(worker: Holder, request: FollowUp) -> None:
    """Raise Problem if a tenant-bound worker sets a shared key: the key could block another tenant's jobs."""
    for name in SHARED_KEYS:
        if worker.tenants is not None and getattr(request, name) is not None:
            message = f"follow_ups: {name} is shared by all tenants, and this worker is bound to some; leave it out"
            raise Problem("forbidden", message, ok=False)


def _check_id(request: FollowUp) -> None:
    """Raise Problem unless the id is a random UUID: schedules, resumed jobs and replays use predictable ids."""
    if request.job_id is not None and (
        not IS_UUID(request.job_id) or uuid.UUID(request.job_id).version == DERIVED_VERSION
    ):
        message = "follow_ups: job_id is a random UUID (version 4 or 7); leave it out, and the server makes one"
        raise Problem("validation_failed", message, ok=False)


async def _check_dependencies(engine: Engine, parent: Job, jobs: Sequence[NewJob]) -> None:
    """Raise DependencyNotFound for unknown dependencies; another tenant's job counts as unknown."""
    siblings = {new.job_id for new in jobs}
    job_ids = list({job_id for new in jobs for job_id in new.depends_on} - siblings)
    valid_ids = [job_id for job_id in job_ids if IS_UUID(job_id)]
    dependencies = await engine.store.get(valid_ids) if valid_ids else []
    mine = {job.job_id for job in dependencies if job is not None and job.requester_id == parent.requester_id}
    if missing := [job_id for job_id in job_ids if job_id not in mine]:
        message = f"depends_on: this tenant has no job {missing[0][:100]}; name jobs of the parent's own tenant"
        raise DependencyNotFound(message)


def _new_job(parent: Job, request: FollowUp) -> NewJob:
    """Return the follow-up as a new job of the parent's tenant. Raises Problem if a contract reserves the task."""
    contract = TASKS.get(request.task, "callsheet")
    if contract in PAYLOAD_CHECKED:
        raise reserved_task_problem(request.task)
    options = request.model_dump(exclude={"job_id", "task", "payload", "depends_on", "on_dependency_failure"})
    return NewJob(
        job_id=request.job_id or new_ids(1)[0],
        kind=request.task,
        payload=encode(request.payload if request.payload is not None else {}),
        requester_id=parent.requester_id,
        contract=contract,
        depends_on=tuple(request.depends_on),
        on_dependency_failure=OnDependencyFailure(request.on_dependency_failure),
        **{**options, "correlation_id": request.correlation_id or parent.correlation_id or parent.job_id},
    )


class Places:
    """The remaining quota for the follow-up jobs of one request. With `quotas` None there is no limit."""

    def __init__(self, quotas: Quotas | None) -> None:
        self._quotas = quotas
        self._left: dict[str, int | None] = {}

    async def take(self, requester_id: str, count: int) -> None:
        """Use quota for a job's `count` follow-up jobs; raises QuotaExceeded if the tenant has too little left."""
        if self._quotas is None or count <= 1:
            return
        if requester_id not in self._left:
            self._left[requester_id] = await self._quotas.room(requester_id)
        left = self._left[requester_id]
        if left is None:
            return
        if left < count:
            limit = self._quotas.limits_of(requester_id).queued or 0
            raise quota_exceeded("queued", requester_id, limit=limit, used=limit - left)
        self._left[requester_id] = left - count


class Lines(WeakValueDictionary[str, asyncio.Lock]):
    """One lock per tenant whose workers are creating follow-up jobs in this process."""


LINES = PerServer(lambda _: Lines())


@contextlib.asynccontextmanager
async def places_of(state: ServerState, worker: Holder, tenants: Iterable[str]) -> AsyncIterator[Places]:
    """Lock the tenants and yield their remaining quotas; workers of all tenants are an operator's and have no limit."""
    if worker.tenants is None:
        yield Places(None)
        return
    lines = LINES.of(state)
    async with contextlib.AsyncExitStack() as stack:
        for tenant in sorted(set(tenants)):  # in order, so that no two wait for each other
            await stack.enter_async_context(lines.setdefault(tenant, asyncio.Lock()))
        yield Places(state.quotas)
