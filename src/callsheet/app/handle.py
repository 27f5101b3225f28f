"""`JobHandle`, the return value of `enqueue`: wait for the result, follow the events, cancel, retry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from callsheet.kernel.durations import Duration, seconds
from callsheet.kernel.errors import JobCanceled, JobFailed, ResultTimeout
from callsheet.kernel.job import Event, Job, Status
from callsheet.kernel.wire import decode

if TYPE_CHECKING:
    from callsheet.worker.definition import Definition

    from .application import Callsheet

R = TypeVar("R")


class JobHandle(Generic[R]):
    """A reference to a job. `created` is False if a unique or idempotency key matched an earlier job."""

    __slots__ = ("_app", "_definition", "created", "job_id")

    def __init__(self, app: Callsheet, job_id: str, definition: Definition | None, *, created: bool) -> None:
        self.job_id = job_id
        self.created = created
        self._app = app
        self._definition = definition

    def __repr__(self) -> str:
        return f"<Job {self.job_id}>"

    @property
    def id(self) -> str:
        """The job's id."""
        return self.job_id

    async def get(self) -> Job:
        """Read the job's current state; raises JobNotFound."""
        return await (await self._app.engine()).get(self.job_id)

    async def status(self) -> Status:
        """Read the job's current status."""
        return (await self.get()).status

    async def events(self, after: int = 0) -> AsyncIterator[Event]:
        """Yield the job's events after a `seq`, past and live, until the job ends."""
        engine = await self._app.engine()
        async for event in engine.watch(self.job_id, after):
            yield event

    async def result(self, timeout: Duration | None = None) -> R:  # noqa: ASYNC109 - it limits the wait, not the work
        """Wait for the job's end and return the task's result; raises JobFailed, JobCanceled or ResultTimeout."""
        try:
            async with asyncio.timeout(None if timeout is None else seconds(timeout)):
                return self._outcome(await self._wait_for_end())
        except TimeoutError:
            raise ResultTimeout(f"job {self.job_id} has not ended within {timeout}; it goes on") from None

    async def cancel(self, reason: str = "") -> Job:
        """Cancel the job: a queued job ends at once, a running job soon."""
        return await (await self._app.engine()).cancel(self.job_id, reason)

    async def retry(self) -> Job:
        """Requeue the job after a failure, a cancellation or a dead letter."""
        return await (await self._app.engine()).requeue(self.job_id)

    async def _wait_for_end(self) -> Job:
        while not (job := await self.get()).status.terminal:
            async for _ in self.events(job.event_seq):
                pass
        return job

    def _outcome(self, job: Job) -> R:
        if job.status is Status.SUCCEEDED:
            text = job.result or "null"
            definition = self._definition or self._app.definitions.get(job.kind)
            return cast("R", decode(text) if definition is None else definition.read_result(text))
        if job.status is Status.CANCELED:
            raise JobCanceled(f"job {job.job_id} was canceled: {job.cancel_reason or 'no reason given'}")
        error: dict[str, Any] = decode(job.error) if job.error else {}
        message = f"{error.get('code', 'unknown')}: {error.get('message', '')}"
        raise JobFailed(f"job {job.job_id} ended as {job.status} after {job.attempt_count} attempts: {message}", error)
