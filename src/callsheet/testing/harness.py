"""`harness(app)`: an app on a store of its own in memory, for one test."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, Unpack, cast

from callsheet.app import Callsheet, Task
from callsheet.engine import Engine
from callsheet.engine.clock import ClockWatch
from callsheet.engine.housekeeping import Housekeeping
from callsheet.engine.schedules import schedules
from callsheet.kernel.durations import Duration, milliseconds
from callsheet.kernel.errors import JobFailed, ResultTimeout
from callsheet.kernel.job import Attempt, Event, Job, Status
from callsheet.kernel.wire import decode
from callsheet.store import store_from_url
from callsheet.store.protocol import JobQuery, Store
from callsheet.worker import Worker

from .clock import Clock, Elsewhere, VirtualStore, told
from .crash import WORK, Crash, MortalStore

if TYPE_CHECKING:
    from callsheet.objects import OwnedObjects
    from callsheet.worker.definition import Definition
    from callsheet.worker.options import WorkerOptions

URL = "sqlite::memory:"
ATTEMPTS = 1_000
PAGE = 500


class HasId(Protocol):
    """A job, a new job or a handle."""

    @property
    def job_id(self) -> str:
        """Its id."""
        ...


@dataclass
class _Source:
    """What the harness's worker works for: the app's tasks, on a store that can drop its claims."""

    definitions: Mapping[str, Definition]
    mortal: Engine
    objects_of: Callable[..., OwnedObjects]
    database_url: str = URL

    async def engine(self) -> Engine:
        return self.mortal


class Harness:
    """The jobs of one test. Nothing runs until `run` or `advance` is awaited, and then it runs to its end."""

    def __init__(self, app: Callsheet, engine: Engine, clock: Clock, options: WorkerOptions) -> None:
        self.clock = clock
        self._app = app
        self._engine = engine
        self._store = cast("VirtualStore", engine.store)
        self._watch = ClockWatch(engine.store, steady=lambda: clock.ms, boot="virtual")
        self._mortal = MortalStore(self._store)
        self._source = _Source(app.definitions, Engine(cast("Store", self._mortal)), app.objects_of)
        self._options = options

    async def run(self, *, limit: int = ATTEMPTS) -> list[Job]:
        """Run all that is due, and what comes of it, to the end; the jobs that ended, in order.

        Raises RuntimeError after `limit` attempts: a job that enqueues itself without a delay has no end.
        """
        known = len(self._store.ended)
        self._mortal.attempts_left = limit + 1
        await self._run_due(limit)
        return await self._ended_since(known)

    async def advance(self, duration: Duration, *, limit: int = ATTEMPTS) -> list[Job]:
        """Let time pass and run each job when it is due on the way: delays, retries, lost leases, schedules."""
        known, end = len(self._store.ended), self.clock.ms + milliseconds(duration)
        self._mortal.attempts_left = limit + 1
        await self._run_due(limit)
        while (moment := await self._next_moment()) is not None and moment <= end:
            self.clock.ms = moment
            await self._run_due(limit)
        self.clock.ms = end
        await self._run_due(limit)
        return await self._ended_since(known)

    def crash(self, task: Task[..., Any] | str, *, after: str = WORK) -> None:
        """Let the worker die in the next attempt of a task, as by `kill -9`; its lease then has to run out.

        `after`: `start` (before the function's first line), `step:<name>`, `stage:<name>`, `progress`,
        `progress:<percent>`, or `work`: all is done and only the outcome is not written yet.
        """
        crash = Crash(_name(task), after)
        crash.check()
        self._mortal.asked.append(crash)

    def enqueued(self, task: Task[..., Any] | str) -> list[dict[str, Any]]:
        """The arguments of all jobs of a task that were created, oldest first, follow-ups and schedules included."""
        return [decode(new.payload) for new in self._store.created if new.kind == _name(task)]

    async def job(self, job: HasId | str) -> Job:
        """A job as it is now; raises JobNotFound."""
        return await self._engine.get(_id(job))

    async def result(self, job: HasId | str) -> Any:
        """What a task returned; raises JobFailed or JobCanceled, and ResultTimeout at once if the job has not ended."""
        found = await self.job(job)
        if not found.status.terminal:
            last = f"; its last attempt: {told(found.error)}" if found.error else ""
            raise ResultTimeout(f"job {found.job_id} ({found.kind}) has not ended: {_waiting(found, self.clock)}{last}")
        try:
            return await self._app.job(found.job_id).result()
        except JobFailed as error:
            if found.error:
                error.add_note(told(found.error))
            raise

    async def events(self, job: HasId | str) -> list[Event]:
        """All events of a job so far."""
        found = await self.job(job)
        return await self._engine.store.events({found.job_id: 0}, max(1, found.event_seq))

    async def attempts(self, job: HasId | str) -> list[Attempt]:
        """All executions of a job, oldest first."""
        return await self._engine.store.attempts(_id(job))

    def check_crashes(self) -> None:
        """Raise AssertionError for a crash that was asked for and did not happen; the end of a harness does it."""
        for crash in (*self._mortal.missed, *self._mortal.asked):
            why = "came to its end before" if crash in self._mortal.missed else "was not run up to"
            raise AssertionError(f"no worker died: {crash.kind} {why} {crash.after!r}")

    async def _run_due(self, limit: int) -> None:
        """Sweep and work until neither changes anything."""
        seen = -1
        while seen != self._store.moves:
            seen = self._store.moves
            await Housekeeping(self._engine, clock=self._watch).sweep()
            await self._work()
            if self._mortal.attempts_left <= 0:
                raise RuntimeError(
                    f"{limit} attempts and no end: does a job enqueue itself, or snooze, without a delay?"
                )
        if self._mortal.missed:
            self.check_crashes()

    async def _work(self) -> None:
        queues = {d.queue for d in self._app.definitions.values()} | (await self._engine.store.counts()).keys()
        served: WorkerOptions = {
            "queues": tuple(sorted(queues)) or ("default",),
            "task_patience": 0,  # there are no other workers
            **self._options,
            "housekeeping": False,
        }
        await Worker(self._source, **served).run(burst=True)

    async def _next_moment(self) -> int | None:
        """When something is due next: a job, a lease that runs out, a schedule's slot."""
        moments = [slot for _, slot in await schedules(self._engine.store)]
        query = JobQuery(statuses=(Status.QUEUED, Status.RUNNING), limit=PAGE)
        while True:
            page = await self._engine.find(query)
            moments += [j.run_at if j.lease_expires_at is None else j.lease_expires_at + 1 for j in page.jobs]
            if page.cursor is None:
                return min((moment for moment in moments if moment > self.clock.ms), default=None)
            query = query._replace(cursor=page.cursor)

    async def _ended_since(self, known: int) -> list[Job]:
        ids = list(dict.fromkeys(self._store.ended[known:]))
        return [job for job in await self._engine.store.get(ids) if job is not None]


@contextlib.asynccontextmanager
async def harness(
    app: Callsheet, *, at: datetime | None = None, **options: Unpack[WorkerOptions]
) -> AsyncIterator[Harness]:
    """Point an app at a fresh store in memory, on a virtual clock. `options` are those of a worker."""
    clock = Clock(at)
    store = VirtualStore(store_from_url(URL), clock)
    async with Engine(cast("Store", store)) as engine, _pointed_at(app, engine):
        jobs = Harness(app, engine, clock, options)
        yield jobs
        jobs.check_crashes()


@contextlib.contextmanager
def harness_sync(app: Callsheet, *, at: datetime | None = None, **options: Unpack[WorkerOptions]) -> Iterator[Harness]:
    """The same for tests without an event loop: `app.sync(jobs.run())`."""
    opened = harness(app, at=at, **options)
    jobs = app.sync(opened.__aenter__())
    try:
        yield jobs
    except BaseException as error:
        app.sync(opened.__aexit__(type(error), error, error.__traceback__))
        raise
    app.sync(opened.__aexit__(None, None, None))


@contextlib.asynccontextmanager
async def _pointed_at(app: Callsheet, engine: Engine) -> AsyncIterator[None]:
    """Let the app use this engine on every event loop, whatever opens and closes the app meanwhile."""
    home, url, before = asyncio.get_running_loop(), app.database_url, vars(app).get("engine")
    store = cast("Store", Elsewhere(cast("VirtualStore", engine.store), home))
    engines: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Engine] = weakref.WeakKeyDictionary({home: engine})

    async def engine_here() -> Engine:
        loop = asyncio.get_running_loop()
        return engines.get(loop) or engines.setdefault(loop, Engine(store))

    app.database_url, vars(app)["engine"] = URL, engine_here
    try:
        yield
    finally:
        app.database_url = url
        vars(app).pop("engine") if before is None else vars(app).update(engine=before)
        for loop, other in list(engines.items()):
            if other is not engine and loop.is_running():
                ended = asyncio.run_coroutine_threadsafe(other.__aexit__(None, None, None), loop)
                await asyncio.wrap_future(ended)


def _id(job: HasId | str) -> str:
    return job if isinstance(job, str) else job.job_id


def _name(task: Task[..., Any] | str) -> str:
    return task if isinstance(task, str) else task.name


def _waiting(job: Job, clock: Clock) -> str:
    """What a job waits for, in words."""
    if job.status is Status.RUNNING:
        return f"its lease lasts {((job.lease_expires_at or clock.ms) - clock.ms) / 1000:g} s more"
    if job.run_at > clock.ms:
        return f"it is due in {(job.run_at - clock.ms) / 1000:g} s"
    return f"it is queued (held: {job.held})" if job.held else "it is queued; await jobs.run()"
