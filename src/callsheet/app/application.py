"""`Callsheet`: one store, the tasks declared for it, and an engine for each event loop that uses it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, overload

from callsheet.catalog import catalog_url, migrate_beside, open_catalog
from callsheet.engine import Engine
from callsheet.engine.schedules import Schedule, declare_schedules, delete_schedule, put_schedule, schedules
from callsheet.extras import needed_for
from callsheet.kernel.durations import Duration
from callsheet.kernel.errors import InvalidTask, UnknownStore, UnknownTask
from callsheet.settings import DEFAULT_DATABASE_URL, contract_objects_url
from callsheet.worker import Worker
from callsheet.worker.context import Context
from callsheet.worker.current import RUN, tasks_run_here
from callsheet.worker.definition import Definition
from callsheet.worker.registration import register_tasks

from .counting import AppCounter, AppOwners
from .declared_schedules import ScheduleOptions, program_name, schedule_of
from .handle import JobHandle
from .options import TaskOptions, definition_of
from .per_loop import PerLoop
from .portal import Portal
from .task import Task
from .within import Within, WithinPlain, handles, within

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from callsheet.asgi import AsgiServer
    from callsheet.catalog.protocol import Catalog
    from callsheet.engine.system_secrets import Sealer
    from callsheet.kernel.job import Job, NewJob
    from callsheet.objects import Objects, OwnedObjects
    from callsheet.worker.options import WorkerOptions
    from callsheet.worker.remote import RemoteOptions, RemoteWorker
    from callsheet.worker.run import Run

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Callsheet:
    """A job system on the store of a URL: `sqlite:///jobs.db`, `postgresql://…` or `redis://…`.

    The store opens on first use; `async with app` closes the store at the end. The default URL is
    CALLSHEET_DATABASE_URL. `redis_url` (else CALLSHEET_REDIS_URL) adds Redis Streams to a SQL store; an empty value
    turns them off. CALLSHEET_OBJECTS_URL (else S3_BUCKET), or the attribute `objects_url`, locates files of jobs.
    """

    def __init__(
        self, database_url: str | None = None, *, requester_id: str = "", redis_url: str | None = None
    ) -> None:
        self.database_url = database_url or os.environ.get("CALLSHEET_DATABASE_URL") or DEFAULT_DATABASE_URL
        self.redis_url = os.environ.get("CALLSHEET_REDIS_URL") if redis_url is None else redis_url
        self.objects_url = os.environ.get("CALLSHEET_OBJECTS_URL") or contract_objects_url(os.environ)
        self.catalog_url = os.environ.get("CALLSHEET_CATALOG_URL", "")
        self.requester_id = requester_id
        self.tasks: dict[str, Task[..., Any]] = {}
        self.declared_schedules: list[Schedule] = []
        self.definitions: dict[str, Definition] = {}
        self._engines = PerLoop(self._open_engine)
        self._objects = PerLoop(self._open_objects)
        self._catalogs = PerLoop(self._open_catalog)
        self._portal = Portal(self.close)
        self._counter = AppCounter(self)

    async def __aenter__(self) -> Self:
        await self.engine()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def engine(self) -> Engine:
        """Return the engine of this event loop, opened on first use."""
        return await self._engines.get()

    async def objects(self, *, of_all_tenants: bool = False) -> Objects:
        """Return this event loop's objects: files of jobs, in a folder or S3. Raises UnknownObjects without a URL.

        Inside a running task the result is limited to the job, like `ctx.objects`. Access to all objects is for
        operators' code only: before a worker runs in this process, or with `of_all_tenants`. Other calls raise
        ObjectNotOwned, because a thread started by a task looks the same as operators' code.
        """
        run = RUN.get()
        if of_all_tenants or run is None:
            self._check_outside(run, of_all_tenants=of_all_tenants)
            return await self._objects.get()
        return self.objects_of(run.job, asyncio.get_running_loop())

    @staticmethod
    def _check_outside(run: Run | None, *, of_all_tenants: bool) -> None:
        from callsheet.objects import ObjectNotOwned  # noqa: PLC0415 - a third of an app's import

        if run is not None:
            raise ObjectNotOwned("of_all_tenants is not for tasks; use ctx.objects, which are the job's own")
        if tasks_run_here() and not of_all_tenants:
            raise ObjectNotOwned(
                "a worker runs in this process and this code belongs to no attempt: hand ctx.objects to a thread that "
                "a task starts; operators' code says app.objects(of_all_tenants=True)"
            )

    def objects_of(self, job: Job, loop: asyncio.AbstractEventLoop | None = None) -> OwnedObjects:
        """Return the objects that a job's task may use. Blocking methods run on `loop`, else on the loop of `sync`."""
        from callsheet.objects.owned import Holder, OwnedObjects, Source  # noqa: PLC0415 - a third of an app's import

        source = Source(self._objects.get, AppOwners(self), loop or self._portal.loop(), self._counter)
        return OwnedObjects(source, Holder(job.requester_id, job.job_id))

    async def catalog(self) -> Catalog:
        """Return the video catalogue of this event loop, opened on first use."""
        return await self._catalogs.get()

    async def _open_engine(self) -> Engine:
        engine = Engine.from_url(self.database_url, redis_url=self.redis_url)
        engine.sealer = _system_sealer
        return await engine.__aenter__()

    async def _open_objects(self) -> Objects:
        from callsheet.objects import UnknownObjects, open_objects  # noqa: PLC0415 - a third of an app's import

        if not self.objects_url:
            raise UnknownObjects("no objects are set up: set CALLSHEET_OBJECTS_URL to file:///folder or s3://bucket")
        engine = await self.engine()
        return await open_objects(self.objects_url, engine.store, sealer=engine.sealer)

    async def _open_catalog(self) -> Catalog:
        url = catalog_url(self.catalog_url, self.database_url)
        if url is None:
            raise UnknownStore("the catalogue of videos is off; set CALLSHEET_CATALOG_URL to a database")
        catalog = open_catalog(url)
        await catalog.open()
        return catalog

    async def close(self) -> None:
        """Close the store, the objects and the catalogue of this event loop; a second call is harmless."""
        if (catalog := await self._catalogs.take()) is not None:
            await catalog.close()
        if (objects := await self._objects.take()) is not None:
            await objects.close()
        if (engine := await self._engines.take()) is not None:
            await engine.__aexit__(None, None, None)

    async def migrate(self) -> list[str]:
        """Migrate the schemas of store and catalogue to this program's version; return the migrations that ran."""
        engine = Engine.from_url(self.database_url)
        try:
            ran = await engine.store.migrate()
        finally:
            await engine.store.close()
        return ran + await migrate_beside(self.catalog_url, self.database_url)

    @overload
    def task(self, function: Callable[Concatenate[Context, P], Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(self, /, **options: Unpack[TaskOptions]) -> _Declares: ...
    def task(self, function: Callable[..., Any] | None = None, /, **options: Unpack[TaskOptions]) -> Any:
        """Declare a function as a task: `@app.task`, or `@app.task(queue="media", timeout="10m")`."""
        if function is None:
            return lambda later: self._declare(later, options)
        return self._declare(function, options)

    def _declare(self, function: Callable[..., Any], options: TaskOptions) -> Task[..., Any]:
        definition = definition_of(function, options)
        if definition.name in self.tasks:
            raise InvalidTask(f"two tasks are called {definition.name!r}; give one of them another name=")
        self.definitions[definition.name] = definition
        task: Task[..., Any] = Task(self, definition)
        self.tasks[definition.name] = task
        return task

    def task_named(self, name: str) -> Task[..., Any]:
        """Return a declared task by name; raises UnknownTask."""
        try:
            return self.tasks[name]
        except KeyError:
            names = ", ".join(sorted(self.tasks)) or "none"
            raise UnknownTask(f"no task {name!r}; declared are: {names}") from None

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[JobHandle[Any]]:
        """Create jobs made by `task.new_job(…)`, of one or several tasks, in one transaction."""
        engine = await self.engine()
        answers = await engine.enqueue(jobs)
        return handles(self, jobs, answers)

    @overload
    def within(self, connection: sqlite3.Connection) -> WithinPlain: ...
    @overload
    def within(self, connection: Any) -> Any: ...
    def within(self, connection: Any) -> Within | WithinPlain:
        """Enqueue in a transaction of yours: `await app.within(connection).enqueue(resize, url=…)`.

        `connection` is asyncpg's, psycopg's or sqlite3's, to the same database. A sync connection needs no `await`.
        """
        return within(self, connection)

    def cron(self, line: str, **options: Unpack[ScheduleOptions]) -> Callable[[Task[P, R]], Task[P, R]]:
        """Declare that a task runs at the times of a cron line: `@app.cron("0 3 * * *", timezone="Europe/Berlin")`.

        It stands above `@app.task`. Workers write the schedules that their program declares, and delete those that it
        does not declare any more.
        """
        return lambda task: self._declare_schedule(task, schedule_of(task, options, cron=line))

    def every(self, interval: Duration, **options: Unpack[ScheduleOptions]) -> Callable[[Task[P, R]], Task[P, R]]:
        """Declare that a task runs at an interval: `@app.every("10m")`, above `@app.task`. As `cron` in all else."""
        return lambda task: self._declare_schedule(task, schedule_of(task, options, every=interval))

    def _declare_schedule(self, task: Task[P, R], schedule: Schedule) -> Task[P, R]:
        if any(other.name == schedule.name for other in self.declared_schedules):
            raise InvalidTask(f"two schedules are called {schedule.name!r}; give one of them another name=")
        self.declared_schedules.append(schedule)
        return task

    async def register(self, engine: Engine | None = None) -> None:
        """Tell the store which tasks this program serves and which schedules it declares. Workers call it themselves.

        A module that has tasks but declares no schedule any more loses those that it declared.
        """
        store = (engine or await self.engine()).store
        await register_tasks(store, self.definitions)
        programs = {name: program_name(each.function.__module__) for name, each in self.definitions.items()}
        by_program: dict[str, list[Schedule]] = {program: [] for program in programs.values()}
        for schedule in self.declared_schedules:
            by_program[programs[schedule.kind]].append(schedule)
        await declare_schedules(store, by_program)

    async def put_schedule(self, schedule: Schedule) -> None:
        """Create a schedule, or replace the schedule of that name; the next slot fires first."""
        await put_schedule((await self.engine()).store, schedule)

    async def schedules(self) -> list[tuple[Schedule, int]]:
        """Return all schedules, each with its next slot in milliseconds."""
        return await schedules((await self.engine()).store)

    async def delete_schedule(self, name: str) -> bool:
        """Delete a schedule; return False for an unknown name."""
        return await delete_schedule((await self.engine()).store, name)

    def job(self, job_id: str) -> JobHandle[Any]:
        """Return a handle to a job by its id, without reading the store."""
        return JobHandle(self, job_id, None, created=False)

    def worker(self, **options: Unpack[WorkerOptions]) -> Worker:
        """Return a worker for this app's tasks: `await app.worker(concurrency=20).run()`."""
        return Worker(self, **options)

    def remote_worker(self, remote: RemoteOptions, **options: Unpack[WorkerOptions]) -> RemoteWorker:
        """Return a worker with jobs from a server: `await app.remote_worker(RemoteOptions(url, token)).run()`."""
        from callsheet.worker.remote import RemoteWorker  # noqa: PLC0415 - httpx2, which a local worker does not need

        return RemoteWorker(self, remote, **options)

    def asgi(self, **settings: Any) -> AsgiServer:
        """Return this app's HTTP server as an ASGI application, for `uvicorn --factory shop:app.asgi` and the like.

        Each setting of `callsheet serve` may be given by its name, as in `app.asgi(rate_limit=100)`; else its variable
        counts. The app's URLs say where the store, the files and the catalogue are. Raises MissingExtra, InvalidInput.
        """
        from callsheet import __version__  # noqa: PLC0415 - the package imports this module

        with needed_for("Callsheet.asgi"):
            from callsheet.asgi import AsgiServer, ServerSettings  # noqa: PLC0415 - FastAPI, which is an extra
        from .sealing import sealer_from  # noqa: PLC0415 - the vault, which few apps need

        server = ServerSettings.read(settings, os.environ)
        self.objects_url = self.objects_url or self.default_objects_url()
        return AsgiServer(self, server, sealer_from(os.environ), __version__)

    def default_objects_url(self) -> str:
        """Return where programs keep files if no URL says it: a folder beside the SQLite file; '' for other stores."""
        from callsheet.store import store_from_url  # noqa: PLC0415 - a driver that many apps do not need
        from callsheet.store.sqlite import SqliteStore  # noqa: PLC0415

        store = store_from_url(self.database_url)
        if not isinstance(store, SqliteStore):
            return ""
        if store.target.in_memory:
            return "memory:"
        path = Path(store.target.path).absolute()
        return path.with_name(f"{path.stem}-objects").as_uri()

    def sync(self, awaitable: Awaitable[T], timeout: float | None = None) -> T:
        """Run an awaitable from sync code, on a shared background loop: `job = app.sync(resize.enqueue(url=…))`."""
        return self._portal.run(awaitable, timeout)

    def sync_iterate(self, items: Any) -> Iterator[Any]:
        """Iterate over an async iterator from sync code: `for event in app.sync_iterate(job.events())`."""
        return self._portal.iterate(items)


def _system_sealer() -> Sealer | None:
    from .sealing import system_sealer  # noqa: PLC0415 - the vault, which few apps need

    return system_sealer()


class _Declares:
    """The type of `@app.task(…)`: decorates functions with or without a context."""

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any: ...
