"""`Context`, the `ctx` of a task: reports progress, stores steps, makes a folder, starts programs, enqueues more jobs.

All methods work from async functions and from threads alike. A report returns immediately; await the returned write
(or call its `wait()`) to learn of its commit.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from callsheet.kernel import commands
from callsheet.kernel.errors import InvalidInput, StaleClaim
from callsheet.kernel.events import check_own
from callsheet.kernel.job import Job, NewEvent, NewJob
from callsheet.kernel.wire import clean, decode, encode

from .children import Children
from .current import extra
from .run import PendingWrite, Run
from .steps import STEP_LIMIT_BYTES, Step, checked_name
from .workspace import Workspace

if TYPE_CHECKING:
    from callsheet.engine.resuming import Steps
    from callsheet.kernel.settlement import Settlement
    from callsheet.objects import OwnedObjects

    from .options import Options
    from .plane import JobSource

log = logging.getLogger("callsheet.task")
EVENT_NAME = re.compile(r"[a-z][a-z0-9_.]{0,39}").fullmatch


class MakesJobs(Protocol):
    """The part of a `Task` that follow-up jobs need."""

    def new_job(self, *args: Any, **kwargs: Any) -> NewJob:
        """Return a checked job of this task without enqueueing it."""
        ...


class Context:
    """The `ctx` argument of a task, for one attempt."""

    def __init__(self, run: Run, engine: JobSource, options: Options | None = None) -> None:
        self._run = run
        self._engine = engine
        self._options = options

    @property
    def job(self) -> Job:
        """The job, including this attempt's reports so far."""
        return self._run.job

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self._run.job_id

    @property
    def attempt(self) -> int:
        """The attempt's number; the first attempt is 1."""
        return self._run.job.attempt_count

    @property
    def cancelled(self) -> bool:
        """True if the work must stop: it was cancelled, timed out, lost its claim, or the worker shuts down."""
        return self._run.stop is not None

    @property
    def stop_reason(self) -> str | None:
        """The reason to stop: `cancel`, `timeout`, `lost` or `shutdown`; None to continue."""
        return None if self._run.stop is None else self._run.stop.value

    def progress(self, percent: float, message: str = "") -> PendingWrite:
        """Report progress from 0 to 100; it never falls."""
        return self._run.report(lambda job: commands.progress(job, percent, message))

    def stage(self, name: str) -> PendingWrite:
        """Enter a stage, such as `decoding`."""
        return self._run.report(lambda job: commands.advance(job, name))

    def log(self, message: str, *, level: str = "info", **fields: Any) -> PendingWrite:
        """Add a log line to the job's events, and write the line to the worker's log."""
        number = logging.getLevelNamesMapping().get(level.upper(), logging.INFO)
        log.log(number, "%s %s", self.job_id, message, extra=extra(self.job))
        data = encode({"level": level, "message": clean(message), **fields})
        return self._run.report(lambda job: commands.note(job, NewEvent("log", job.stage, data)))

    def emit(self, type: str, /, **data: Any) -> PendingWrite:
        """Add a custom event for watchers of the job: `ctx.emit("token", text="…")`. Status events are reserved."""
        if not EVENT_NAME(type):
            raise InvalidInput(f"{type!r} is no event's name; use up to 40 lower-case letters, digits and _")
        check_own(type)
        note = encode(data)
        return self._run.report(lambda job: commands.note(job, NewEvent(type, job.stage, note)))

    def write(self, command: Callable[[Job], Settlement]) -> PendingWrite:
        """Write any settlement that does not end the attempt; for tasks of a contract."""
        return self._run.report(command)

    def step(self, name: str) -> Step:
        """Return a step, whose stored result lets a later attempt skip that part of the work."""
        return Step(name, self._run, self._engine)

    def keep(self, name: str, value: Any) -> PendingWrite:
        """Store a checkpoint under a name, for a later attempt to continue from; `recall` returns the value."""
        data = encode(value, limit_bytes=STEP_LIMIT_BYTES)
        step = checked_name(name)
        return self._run.report(lambda job: commands.checkpoint(job, step, data))

    async def recall(self, name: str) -> Any:
        """Return the last value kept under a name by any attempt of this job or of a job it resumes; None if absent."""
        results = (await self.steps()).results
        return decode(results[name]) if name in results else None

    async def steps(self) -> Steps:
        """Return the results of completed steps by name, as JSON, and the ids of their jobs."""
        return await self._engine.steps(self._run.job)

    def enqueue(self, task: MakesJobs, /, *args: Any, **kwargs: Any) -> str:
        """Request a follow-up job, created in the transaction of this job's success; return its id."""
        parent = self._run.job
        new = task.new_job(*args, **kwargs)
        new = new._replace(
            requester_id=new.requester_id or parent.requester_id,
            correlation_id=new.correlation_id or parent.correlation_id or parent.job_id,
        )
        if self._run.follow_ups is None:
            self._run.follow_ups = []
        self._run.follow_ups.append(new)
        return new.job_id

    @cached_property
    def workspace(self) -> Path:
        """A private folder of this attempt, removed after success, failure or crash."""
        self._folder = Workspace.create(self._options.workspaces if self._options else None, self._run.job.claim)
        return self._folder.path

    @cached_property
    def objects(self) -> OwnedObjects:
        """The app's objects, limited to this job: it reads its requester's objects, and writes its own outputs."""
        if self._options is None or self._options.objects is None:
            raise InvalidInput("this context has no app, and so no objects; run the task by a worker")
        return self._options.objects(self._run.job, self._run.flusher.loop)

    @cached_property
    def children(self) -> Children:
        """Programs that end with this attempt: `await ctx.children.start("ffmpeg", …)`."""
        return Children(self._run)

    def raise_if_cancelled(self) -> None:
        """Raise StaleClaim if the work must stop; call this from loops in plain functions."""
        if self._run.stop is not None:
            raise StaleClaim(f"job {self.job_id} is to stop: {self._run.stop.value}")

    def close(self) -> None:
        """Kill the started programs and remove the folder. The worker calls this; a second call changes nothing."""
        children: Children | None = self.__dict__.pop("children", None)
        if children is not None:
            children.kill()
        if self.__dict__.pop("workspace", None) is not None:
            self._folder.remove()
