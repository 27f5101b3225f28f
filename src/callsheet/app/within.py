"""Enqueue inside the caller's own transaction: the job exists if and only if the caller commits.

The connection must be to the database that holds the jobs: asyncpg, psycopg (sync or async) or sqlite3. For a sync
connection the methods are plain calls, for an async connection they are awaited.
"""

from __future__ import annotations

import json
import time
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from uuid import UUID

from callsheet.kernel import new_jobs
from callsheet.kernel.errors import InvalidInput, StoreError
from callsheet.kernel.job import NewJob

from .handle import JobHandle

if TYPE_CHECKING:
    import sqlite3

    from callsheet.store.protocol import Enqueued

    from .application import Callsheet
    from .task import Task

T = TypeVar("T")


class Session(Protocol):
    """The part of asyncpg's connection interface that the PostgreSQL store uses."""

    async def fetch(self, sql: str, *parameters: object) -> Sequence[Any]:
        """Run a query and return its rows."""
        ...

    async def fetchval(self, sql: str, *parameters: object) -> Any:
        """Run a query and return the first column of its first row."""
        ...

    async def execute(self, sql: str, *parameters: object) -> object:
        """Run a statement; the result is ignored."""
        ...


class Within:
    """`app.within(connection)` for async connections."""

    def __init__(self, app: Callsheet, session: Session) -> None:
        self._app = app
        self._session = session

    async def enqueue(self, task: Task[..., Any], /, *args: Any, **kwargs: Any) -> JobHandle[Any]:
        """Create a job of a task inside the transaction."""
        (handle,) = await self.enqueue_many([task.new_job(*args, **kwargs)])
        return handle

    async def enqueue_many(self, jobs: Sequence[NewJob]) -> list[JobHandle[Any]]:
        """Create jobs made by `task.new_job(…)`. Workers are notified on the caller's commit."""
        from callsheet.store.postgres.enqueue import Q, enqueue_within  # noqa: PLC0415 - needs asyncpg

        new_jobs.check_batch(jobs)
        note = json.dumps(["", sorted({new.queue for new in jobs}), []])
        await self._savepoint()
        try:
            answers = await enqueue_within(self._session, jobs, None)
            await self._session.fetch(Q.notify_on_commit, note)
        except BaseException:
            await self._session.execute("ROLLBACK TO SAVEPOINT callsheet")
            raise
        await self._session.execute("RELEASE SAVEPOINT callsheet")
        return handles(self._app, jobs, answers)

    async def _savepoint(self) -> None:
        """Create a savepoint; raises InvalidInput outside a transaction, where a job could be written only in part."""
        try:
            await self._session.execute("SAVEPOINT callsheet")
        except Exception as error:
            if "transaction block" not in str(error):
                raise
            raise InvalidInput("this connection is in no transaction; begin one, then enqueue within it") from error


class WithinPlain:
    """`app.within(connection)` for sync connections."""

    def __init__(self, within: Within) -> None:
        self._within = within

    def enqueue(self, task: Task[..., Any], /, *args: Any, **kwargs: Any) -> JobHandle[Any]:
        """Create a job of a task inside the transaction."""
        return _finish(self._within.enqueue(task, *args, **kwargs))

    def enqueue_many(self, jobs: Sequence[NewJob]) -> list[JobHandle[Any]]:
        """Create jobs made by `task.new_job(…)`."""
        return _finish(self._within.enqueue_many(jobs))


class _WithinSqlite(Within):
    def __init__(self, app: Callsheet, db: sqlite3.Connection) -> None:
        self._app = app
        self._db = db

    async def enqueue_many(self, jobs: Sequence[NewJob]) -> list[JobHandle[Any]]:
        """Create jobs in a savepoint, so that a batch is atomic even if the caller has not begun a transaction."""
        from callsheet.store.sqlite.enqueue import enqueue  # noqa: PLC0415

        new_jobs.check_batch(jobs)
        legacy = getattr(self._db, "autocommit", None) is not True  # an option of Python 3.12
        if legacy and not self._db.in_transaction and self._db.isolation_level is not None:
            self._db.execute("BEGIN")  # as sqlite3 itself does before a first write; else RELEASE would commit
        self._db.execute("SAVEPOINT callsheet")
        try:
            answers = enqueue(self._db, jobs, time.time_ns() // 1_000_000)
        except BaseException as error:
            self._db.execute("ROLLBACK TO callsheet")
            if "no such table" in str(error):
                raise StoreError(
                    "this database has no Callsheet tables; open it once as the app's, or migrate it"
                ) from error
            raise
        finally:
            self._db.execute("RELEASE callsheet")
        return handles(self._app, jobs, answers)


class _Psycopg:
    """Adapts a sync or async psycopg connection to asyncpg's interface."""

    def __init__(self, connection: Any, *, plain: bool) -> None:
        import psycopg  # noqa: PLC0415 - the caller's library

        self._connection = connection
        self._cursor: Any = psycopg.RawCursor if plain else psycopg.AsyncRawCursor
        self._rows = psycopg.rows.tuple_row
        self._plain = plain

    async def fetch(self, sql: str, *parameters: object) -> Sequence[Any]:
        cursor = self._cursor(self._connection, row_factory=self._rows)
        result = cursor.execute(sql, [_plain_text(value) for value in parameters])
        if not self._plain:
            await result
        if cursor.description is None:
            return []
        rows = cursor.fetchall() if self._plain else await cursor.fetchall()
        return _with_plain_ids(rows)

    async def fetchval(self, sql: str, *parameters: object) -> Any:
        return (await self.fetch(sql, *parameters))[0][0]

    async def execute(self, sql: str, *parameters: object) -> object:
        return await self.fetch(sql, *parameters)


class _Asyncpg:
    """Adapts an asyncpg connection: UUIDs in rows become text."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def fetch(self, sql: str, *parameters: object) -> Sequence[Any]:
        rows = await self._connection.fetch(sql, *parameters)
        return _with_plain_ids(rows)

    async def fetchval(self, sql: str, *parameters: object) -> Any:
        return await self._connection.fetchval(sql, *parameters)

    async def execute(self, sql: str, *parameters: object) -> object:
        return await self._connection.execute(sql, *parameters)


def within(app: Callsheet, connection: Any) -> Within | WithinPlain:
    """Return the enqueueing object for a connection, by its library; raises InvalidInput for other libraries."""
    kinds = {f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(connection).__mro__}
    if "sqlite3.Connection" in kinds:
        return WithinPlain(_WithinSqlite(app, connection))
    if "psycopg.Connection" in kinds or "psycopg.AsyncConnection" in kinds:
        if "psycopg.AsyncConnection" in kinds:
            return Within(app, _Psycopg(connection, plain=False))
        return WithinPlain(Within(app, _Psycopg(connection, plain=True)))
    if any(kind.startswith("asyncpg.") for kind in kinds):
        return Within(app, _Asyncpg(connection))
    library = f"{type(connection).__module__}.{type(connection).__name__}"
    raise InvalidInput(f"jobs cannot join a transaction of {library}; pass an asyncpg, psycopg or sqlite3 connection")


def handles(app: Callsheet, jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> list[JobHandle[Any]]:
    """Return a job handle per answer."""
    find = app.definitions.get
    return [JobHandle(app, a.job_id, find(new.kind), created=a.created) for new, a in zip(jobs, answers, strict=True)]


def _with_plain_ids(rows: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return the rows with UUIDs as text, like the rows of the store's own connections."""
    return [tuple(str(value) if isinstance(value, UUID) else value for value in row) for row in rows]


def _plain_text(value: object) -> object:
    """Convert string enumerations to plain text, and tuples to lists."""
    if isinstance(value, (list, tuple)):
        return [_plain_text(item) for item in value]
    return str(value) if isinstance(value, str) else value


def _finish(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends and return its result."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise StoreError("a plain connection made its caller wait")
