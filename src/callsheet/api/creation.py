"""Makes jobs of requests: looks the task up, checks the caller's rights to what the request names, and enqueues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callsheet.http.problems import Problem

from .new_jobs import CreateJob, check_dependencies, new_job
from .tasks import DIRECTORY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from callsheet.http.keys import Principal
    from callsheet.http.state import ServerState
    from callsheet.kernel.job import NewJob
    from callsheet.store.protocol import Enqueued


class Creation:
    """Creates jobs for one caller in one request."""

    def __init__(self, state: ServerState, who: Principal, request_id: str) -> None:
        self._state, self._who, self._request_id = state, who, request_id
        self._tasks = DIRECTORY.of(state)

    async def new_job(self, body: CreateJob) -> NewJob:
        """Return the new job; raises Problem, DependencyNotFound or InvalidJob for what the caller may not ask."""
        record = None
        if not body.is_open:
            record = await self._tasks.check_payload(self._who, body.task, {} if body.payload is None else body.payload)
        new = new_job(body, self._who, record, ttl_s=self._state.job_ttl_s, request_id=self._request_id)
        if new.concurrency_key is not None:
            self._check_slot()
        if new.depends_on:
            await check_dependencies(self._state.engine, self._who, new.depends_on)
        return new

    async def enqueue_all(self, batch: Sequence[NewJob]) -> list[Enqueued]:
        """Enqueue new jobs, all or none."""
        return await self._state.batcher.enqueue_all(batch)

    def _check_slot(self) -> None:
        """Raise Problem if the tenant has a limit on running jobs: a key of the job's own would pass it by."""
        if self._state.quotas.limits_of(self._who.requester_id).running:
            message = "concurrency: your tenant has a limit on running jobs, which this key would pass by; leave it out"
            raise Problem("forbidden", message)
