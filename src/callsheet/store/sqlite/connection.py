"""Connections to a SQLite or libSQL file; one thread owns each connection.

The writer groups waiting requests into one transaction, so that one fsync serves a group. Never `open()` the database
file by hand in this process: closing it would drop SQLite's locks.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import sqlite3
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from callsheet.extras import needed_for
from callsheet.kernel.errors import DuplicateJob, StoreRefused, StoreUnavailable

from .files import GROUPS, keep_private, make_private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Work = Callable[["Db"], Any]

T = TypeVar("T")
Db = sqlite3.Connection
GROUP_LIMIT = 64
log = logging.getLogger("callsheet.sqlite")
IDLE_CHECKPOINT_S = 1.0
BUSY_S = 15
NO_DATABASE = ("unable to open", "not a database", "readonly", "read-only")  # waiting does not repair these
DAMAGE_ERRORS = (sqlite3.DatabaseError, sqlite3.InternalError)  # errors of the file or its disk, not of the statement


class Target(NamedTuple):
    """The database file's path and the options for opening it."""

    path: str
    driver: str = "sqlite"
    synchronous: str = "FULL"
    group: str = ""

    @property
    def mode(self) -> int:
        """The mode of the database files: private to their owner, unless the URL admits the group."""
        return GROUPS[self.group]

    @property
    def in_memory(self) -> bool:
        """Whether the database lives in memory, and ends with its one connection."""
        return self.path == ":memory:"


def connect(target: Target) -> Db:
    """Return a connection in autocommit mode; the caller writes BEGIN and COMMIT. Raises StoreUnavailable."""
    if not target.in_memory:
        make_private(target.path, target.mode)
    try:
        db = _driver_connect(target)
        db.execute(f"PRAGMA busy_timeout={BUSY_S * 1000}").fetchall()
        _use_log(db)
        for pragma in (
            f"synchronous={target.synchronous}",
            "foreign_keys=OFF",
            "temp_store=MEMORY",
            "cache_size=-65536",
            "journal_size_limit=67108864",
        ):
            db.execute(f"PRAGMA {pragma}").fetchall()
    except (sqlite3.Error, ValueError) as error:
        hint = "use sqlite:////absolute/path.db for an absolute path and make sure that the folder exists"
        kind = StoreRefused if any(words in str(error) for words in NO_DATABASE) else StoreUnavailable
        raise kind(f"cannot open {target.path!r} ({error}); {hint}") from error
    if not target.in_memory:
        keep_private(target.path, target.mode)  # also the files that SQLite itself made, behind a link
    return db


def _use_log(db: Db) -> None:
    """Switch the file to its write-ahead log.

    If another process does the same, SQLite answers "locked" at once and not after the busy timeout (waiting in SQLite
    could deadlock), so the wait happens here.
    """
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            db.execute("PRAGMA journal_mode=WAL").fetchall()
        except (sqlite3.OperationalError, ValueError) as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _driver_connect(target: Target) -> Db:
    if target.driver == "libsql":
        with needed_for("a store at libsql://"):
            import libsql  # noqa: PLC0415 - an optional driver

        db: Db = libsql.connect(target.path, isolation_level=None, _check_same_thread=False)
        return db
    return sqlite3.connect(target.path, isolation_level=None, check_same_thread=False, cached_statements=256)


class _Item(NamedTuple):
    work: Work
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


class Thread:
    """A thread with its own connection that runs work items in order."""

    def __init__(self, target: Target, *, writes: bool) -> None:
        self._target = target
        self._writes = writes
        self._items: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    async def start(self) -> None:
        """Connect unless the thread is connected; raises StoreUnavailable."""
        if self._thread is not None:
            return
        loop = asyncio.get_running_loop()
        opening = _Item(_nothing, loop, loop.create_future())
        self._items, self._end = queue.SimpleQueue(), threading.Event()
        life = (self._items, self._end, opening)
        thread = threading.Thread(target=self._run, args=life, name="callsheet-sqlite", daemon=True)
        thread.start()
        await opening.future
        self._thread = thread

    async def stop(self) -> None:
        """Finish the queued work and close the connection. May be called twice."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._items.put(None)
            await asyncio.to_thread(thread.join)

    async def run(self, work: Callable[[Db], T]) -> T:
        """Run `work` on the connection, in a transaction if this thread writes; answers after commit."""
        if self._thread is None:
            raise StoreUnavailable("the store is not open; call open() first")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._items.put(_Item(work, loop, future))
        if self._end.is_set():  # the thread ended before it could see the item, or has answered already
            _refuse(self._items)
        return await future

    def _run(self, items: queue.SimpleQueue[_Item | None], end: threading.Event, opening: _Item) -> None:
        try:
            db = connect(self._target)
        except Exception as error:  # noqa: BLE001 - handed to the caller
            _answer([opening], [(None, error)])
            return
        _answer([opening], [(None, None)])
        try:
            while (group := _next_group(items, db if self._writes else None)) is not None:
                works = [item.work for item in group]
                _answer(group, _write_group(db, works) if self._writes else [_attempt(db, work) for work in works])
        finally:
            end.set()
            _refuse(items)
            db.close()


def _next_group(items: queue.SimpleQueue[_Item | None], writer: Db | None) -> list[_Item] | None:
    """Return the waiting work items without cancelled ones, None at the end. An idle writer checkpoints its log."""
    try:
        item = items.get(timeout=IDLE_CHECKPOINT_S if writer is not None else None)
    except queue.Empty:
        if writer is not None:
            _checkpoint(writer)
        item = items.get()
    group: list[_Item] = []
    while item is not None:
        if not item.future.cancelled():
            group.append(item)
        if len(group) == GROUP_LIMIT or items.empty():
            return group
        item = items.get()
    if group:
        items.put(None)
    return group or None


def _checkpoint(db: Db) -> None:
    try:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except Exception as error:  # noqa: BLE001 - a full disk, a busy reader: the log stays, and the next one tries again
        log.warning("the SQLite log could not be folded back: %s", error)


def _refuse(items: queue.SimpleQueue[_Item | None]) -> None:
    """Fail all queued work items with StoreUnavailable."""
    while not items.empty():
        with contextlib.suppress(queue.Empty):
            item = items.get_nowait()
            if item is not None:
                _answer([item], [(None, StoreUnavailable("the store was closed"))])


Result = tuple[Any, Exception | None]


def _nothing(_: Db) -> None: ...


def _attempt(db: Db, work: Work) -> Result:
    try:
        return work(db), None
    except Exception as error:  # noqa: BLE001 - handed to the caller
        return None, known_error(db, error)


def _write_group(db: Db, works: list[Work]) -> list[Result]:
    """Run all work items in one transaction, each in a savepoint, so that an error undoes one item alone."""
    try:
        db.execute("BEGIN IMMEDIATE")
        results = [_in_savepoint(db, work) for work in works]
        db.execute("COMMIT")
    except Exception as error:  # noqa: BLE001 - handed to every caller: nothing was committed
        if db.in_transaction:
            with contextlib.suppress(Exception):
                db.execute("ROLLBACK")
        return [(None, known_error(db, error))] * len(works)
    return results


def _in_savepoint(db: Db, work: Work) -> Result:
    db.execute("SAVEPOINT work")
    result = _attempt(db, work)
    if result[1] is not None:
        db.execute("ROLLBACK TO work")
    db.execute("RELEASE work")
    return result


def known_error(db: Db, error: Exception) -> Exception:
    """Translate an error of the driver to StoreUnavailable; other exceptions are returned unchanged.

    libSQL raises ValueError for all errors of its own. A ValueError of the other driver means a value that no database
    can write.
    """
    is_libsql = not isinstance(db, sqlite3.Connection) and type(error) is ValueError
    if is_libsql or isinstance(error, sqlite3.OperationalError) or type(error) in DAMAGE_ERRORS:
        return StoreUnavailable(f"SQLite cannot serve now: {error}")
    return error


@contextlib.contextmanager
def refusing_duplicates(advice: str) -> Iterator[None]:
    """Raise DuplicateJob if a unique index rejects a write, for either driver."""
    try:
        yield
    except (sqlite3.IntegrityError, ValueError) as error:
        if "UNIQUE constraint failed" not in str(error):
            raise
        raise DuplicateJob(advice) from error


def _answer(group: list[_Item], results: list[Result]) -> None:
    """Resolve the waiting callers' futures, with one wake-up for each event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any, Exception | None]]] = {}
    for item, (value, error) in zip(group, results, strict=True):
        by_loop.setdefault(item.loop, []).append((item.future, value, error))
    for loop, answers in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_resolve, answers)


def _resolve(answers: list[tuple[asyncio.Future[Any], Any, Exception | None]]) -> None:
    for future, value, error in answers:
        if future.done():
            continue
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)
