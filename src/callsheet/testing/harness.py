"""`harness(app)`: an app on a fresh store in memory, for one test."""

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

from .clock import Clock, Elsewhere, VirtualStore, error_text
from .crash import WORK, Crash, MortalStore

if TYPE_CHECKING:
    from callsheet.objects import OwnedObjects
    from callsheet.worker.definition import Definition
    from callsheet.worker.options import WorkerOptions

URL = "sqlite::memory:"
ATTEMPTS = 1_000
PAGE = 500


class HasId(Protocol):
    """An object with a job id: a job, a new job or a handle."""

    @property
    def job_id(self) -> str:
        """The job's id."""
        ...


@dataclass
class _Source:
    """The app as the harness's worker uses it: the app's tasks, on a store that can simulate crashes."""

    definitions: Mapping[str, Definition]
    mortal: Engine
    objects_of: Callable[..., OwnedObjects]
    database_url: str = URL

    async def engine(self) -> Engine:
        return self.mortal

    async def register(self) -> None:
        """Register nothing: the harness has registered the app at its start."""


class Harness:
    """Runs the jobs of one test. Jobs run only while `run` or `advance` is awaited, and then to their end."""

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
        """Run all due jobs and their follow-ups to the end; return the ended jobs in order.

        Raises RuntimeError after `limit` attempts: a job that enqueues itself without a delay never ends.
        """
        ended_before = len(self._store.ended_ids)
        self._mortal.attempts_left = limit + 1
        await self._run_due(limit)
        return await self._ended_since(ended_before)

    async def advance(self, duration: Duration, *, limit: int = ATTEMPTS) -> list[Job]:
        """Move the clock and run each job at its due time: delays, retries, lost leases, schedules."""
        ended_before, end = len(self._store.ended_ids), self.clock.ms + milliseconds(duration)
        self._mortal.attempts_left = limit + 1
        await self._run_due(limit)
        while (moment := await self._next_moment()) is not None and moment <= end:
            self.clock.ms = moment
            await self._run_due(limit)
        self.clock.ms = end
        await self._run_due(limit)
        return await self._ended_since(ended_before)

    def crash(self, task: Task[..., Any] | str, *, after: str = WORK) -> None:
        """Simulate a worker's `kill -9` in the next attempt of a task; the job's lease must then expire.

        `after`: `start` (before the function's first line), `step:<name>`, `stage:<name>`, `progress`,
        `progress:<percent>`, or `work` (after the function, before its outcome is written).
        """
        crash = Crash(_name(task), after)
        crash.check()
        self._mortal.wanted_crashes.append(crash)

    def enqueued(self, task: Task[..., Any] | str) -> list[dict[str, Any]]:
        """Return the arguments of all created jobs of a task, oldest first, including follow-ups and scheduled jobs."""
        return [decode(new.payload) for new in self._store.created_jobs if new.kind == _name(task)]

    async def job(self, job: HasId | str) -> Job:
        """Return a job's current state; raises JobNotFound."""
        return await self._engine.get(_id(job))

    async def result(self, job: HasId | str) -> Any:
        """Return a job's result; raises JobFailed, JobCanceled, or at once ResultTimeout if the job has not ended."""
        job_now = await self.job(job)
        if not job_now.status.terminal:
            last = f"; its last attempt: {error_text(job_now.error)}" if job_now.error else ""
            raise ResultTimeout(
                f"job {job_now.job_id} ({job_now.kind}) has not ended: {_waiting(job_now, self.clock)}{last}"
            )
        try:
            return await self._app.job(job_now.job_id).result()
        except JobFailed as error:
            if job_now.error:
                error.add_note(error_text(job_now.error))
            raise

    async def events(self, job: HasId | str) -> list[Event]:
        """Return all events of a job so far."""
        job_now = await self.job(job)
        return await self._engine.store.events({job_now.job_id: 0}, max(1, job_now.event_seq))

    async def attempts(self, job: HasId | str) -> list[Attempt]:
        """Return all attempts of a job, oldest first."""
        return await self._engine.store.attempts(_id(job))

    def check_crashes(self) -> None:
        """Raise AssertionError for a requested crash that did not happen; called at the end of each harness."""
        for crash in (*self._mortal.missed_crashes, *self._mortal.wanted_crashes):
            why = "came to its end before" if crash in self._mortal.missed_crashes else "was not run up to"
            raise AssertionError(f"no worker died: {crash.kind} {why} {crash.after!r}")

    async def _run_due(self, limit: int) -> None:
        """Run housekeeping and the worker until the store stops changing."""
        seen = -1
        while seen != self._store.moves:
            seen = self._store.moves
            await Housekeeping(self._engine, clock=self._watch).sweep()
            await self._work()
            if self._mortal.attempts_left <= 0:
                raise RuntimeError(
                    f"{limit} attempts and no end: does a job enqueue itself, or snooze, without a delay?"
                )
        if self._mortal.missed_crashes:
            self.check_crashes()

    async def _work(self) -> None:
        queues = {d.queue for d in self._app.definitions.values()} | (await self._engine.store.counts()).keys()
        options: WorkerOptions = {
            "queues": tuple(sorted(queues)) or ("default",),
            "task_patience": 0,  # there are no other workers
            **self._options,
            "housekeeping": False,
        }
        await Worker(self._source, **options).run(burst=True)

    async def _next_moment(self) -> int | None:
        """Return the time of the next due job, lease expiry or schedule slot; None without any."""
        moments = [slot for _, slot in await schedules(self._engine.store)]
        query = JobQuery(statuses=(Status.QUEUED, Status.RUNNING), limit=PAGE)
        while True:
            page = await self._engine.find(query)
            moments += [j.run_at if j.lease_expires_at is None else j.lease_expires_at + 1 for j in page.jobs]
            if page.cursor is None:
                return min((moment for moment in moments if moment > self.clock.ms), default=None)
            query = query._replace(cursor=page.cursor)

    async def _ended_since(self, ended_before: int) -> list[Job]:
        ids = list(dict.fromkeys(self._store.ended_ids[ended_before:]))
        return [job for job in await self._engine.store.get(ids) if job is not None]


@contextlib.asynccontextmanager
async def harness(
    app: Callsheet, *, at: datetime | None = None, **options: Unpack[WorkerOptions]
) -> AsyncIterator[Harness]:
    """Point an app at a fresh store in memory, on a virtual clock. `options` are a worker's options."""
    clock = Clock(at)
    store = VirtualStore(store_from_url(URL), clock)
    async with Engine(cast("Store", store)) as engine, _pointed_at(app, engine):
        await app.register(engine)
        jobs = Harness(app, engine, clock, options)
        yield jobs
        jobs.check_crashes()


@contextlib.contextmanager
def harness_sync(app: Callsheet, *, at: datetime | None = None, **options: Unpack[WorkerOptions]) -> Iterator[Harness]:
    """Open a harness for tests without an event loop: `app.sync(jobs.run())`."""
    context = harness(app, at=at, **options)
    jobs = app.sync(context.__aenter__())
    try:
        yield jobs
    except BaseException as error:
        app.sync(context.__aexit__(type(error), error, error.__traceback__))
        raise
    app.sync(context.__aexit__(None, None, None))


@contextlib.asynccontextmanager
async def _pointed_at(app: Callsheet, engine: Engine) -> AsyncIterator[None]:
    """Make the app use this engine on every event loop, even if code opens or closes the app meanwhile."""
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
                ended_ids = asyncio.run_coroutine_threadsafe(other.__aexit__(None, None, None), loop)
                await asyncio.wrap_future(ended_ids)


def _id(job: HasId | str) -> str:
    return job if isinstance(job, str) else job.job_id


def _name(task: Task[..., Any] | str) -> str:
    return task if isinstance(task, str) else task.name


def _waiting(job: Job, clock: Clock) -> str:
    """Describe the reason why a job has not ended."""
    if job.status is Status.RUNNING:
        return f"its lease lasts {((job.lease_expires_at or clock.ms) - clock.ms) / 1000:g} s more"
    if job.run_at > clock.ms:
        return f"it is due in {(job.run_at - clock.ms) / 1000:g} s"
    return f"it is queued (held: {job.held})" if job.held else "it is queued; await jobs.run()"
