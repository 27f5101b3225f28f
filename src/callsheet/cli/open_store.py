"""Opens a store for one command: waits for it, finds jobs by the beginning of their ids, writes audit entries."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import getpass
import itertools
import logging
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from callsheet.app.sealing import system_sealer
from callsheet.engine import Engine
from callsheet.kernel.audit import new_entry
from callsheet.kernel.durations import Duration, seconds
from callsheet.kernel.errors import JobNotFound, StoreRefused, StoreUnavailable
from callsheet.kernel.new_jobs import IS_UUID
from callsheet.net.backoff import pause_after
from callsheet.store import store_from_url
from callsheet.store.protocol import JobQuery, Store
from callsheet.store.sqlite import SqliteStore
from callsheet.vault.redact import redact

from .errors import CommandFailed, WrongInput, check_url, without_password, without_passwords

log = logging.getLogger("callsheet.cli")
T = TypeVar("T")
SHORTEST_PREFIX = 8
PAGE = 500
PAGES = 10
INTERRUPTED = 130
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 5.0
SIGNALS = (signal.SIGTERM, signal.SIGINT)
AUDIT_ACTOR = "cli"


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine; Ctrl-C ends it without a traceback."""
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None


def with_engine(*, create: bool = False) -> Callable[[Callable[..., Coroutine[Any, Any, T]]], Callable[..., T]]:
    """Open an engine on `database_url` for a command's coroutine and pass it as the first argument."""

    def decorate(work: Callable[..., Coroutine[Any, Any, T]]) -> Callable[..., T]:
        @functools.wraps(work)
        def command(*, database_url: str, **arguments: Any) -> T:
            async def opened() -> T:
                async with open_engine(database_url, create=create) as engine:
                    return await work(engine, **arguments)

            return run(opened())

        return command

    return decorate


@contextlib.asynccontextmanager
async def open_engine(url: str, *, create: bool = False) -> AsyncIterator[Engine]:
    """Yield an open engine. Without `create` a missing SQLite file is an error: an empty store hides a wrong path."""
    check_url(url)
    store = store_from_url(url)
    if not create and (path := missing_file(store)) is not None:
        advice = "name the store with --database-url or CALLSHEET_DATABASE_URL; `callsheet migrate` makes a new one"
        raise CommandFailed(f"there is no file {path} ({without_password(url)}); {advice}")
    async with Engine(store) as engine:
        engine.sealer = system_sealer
        yield engine


def missing_file(store: Store) -> Path | None:
    """Return the file of a SQLite store if it does not exist, else None."""
    if not isinstance(store, SqliteStore) or store.target.in_memory or Path(store.target.path).exists():
        return None
    return Path(store.target.path)


async def record_audit(store: Store, action: str, *, target: str = "", requester_id: str = "", **details: Any) -> None:
    """Add an entry to the audit log, with this machine's user. `requester_id` is the affected tenant."""
    shown = {name: redact(value) if isinstance(value, str) else value for name, value in details.items()}
    with contextlib.suppress(OSError, KeyError):  # a container may have a user without a name
        shown["user"] = getpass.getuser()
    entry = new_entry(
        action, {**shown, "operator": True}, actor=AUDIT_ACTOR, target=redact(target), requester_id=requester_id
    )
    await store.audit_append([entry])


async def find_job_ids(engine: Engine, texts: Sequence[str]) -> list[str]:
    """Return whole job ids for ids or unique beginnings of ids; raises JobNotFound, or WrongInput if ambiguous."""
    prefixes = {text.lower() for text in texts if not IS_UUID(text.lower())}
    for prefix in prefixes:
        if len(prefix) < SHORTEST_PREFIX:
            raise WrongInput(f"{prefix!r} is too short; write at least {SHORTEST_PREFIX} characters of a job's id")
    whole_ids = await _whole_ids(engine, prefixes) if prefixes else {}
    return [whole_ids.get(text.lower(), text.lower()) for text in texts]


async def _whole_ids(engine: Engine, prefixes: set[str]) -> dict[str, str]:
    matches: dict[str, list[str]] = {prefix: [] for prefix in prefixes}
    cursor: str | None = None
    for _ in range(PAGES):
        page = await engine.find(JobQuery(limit=PAGE, cursor=cursor))
        for prefix, ids in matches.items():
            ids += [job.job_id for job in page.jobs if job.job_id.startswith(prefix)]
        cursor = page.cursor
        if cursor is None:
            break
    for prefix, ids in matches.items():
        if not ids:
            where = "" if cursor is None else f" among the newest {PAGE * PAGES}; write its whole id"
            raise JobNotFound(f"no job begins with {prefix}{where}")
        if len(ids) > 1:
            raise WrongInput(f"{len(ids)} jobs begin with {prefix}: {', '.join(ids[:3])} …; write more of the id")
    return {prefix: ids[0] for prefix, ids in matches.items()}


class StopRequested(Exception):
    """A signal arrived before the program had started."""


class Patience:
    """Retries what a start opens while a store or server is unavailable, for `wait` in all; `wait` 0 never retries.

    Errors that waiting cannot mend are raised at once: a wrong password, a schema that is too new, an unknown URL.
    """

    def __init__(self, wait: Duration) -> None:
        self._wait_s = seconds(wait)
        self._until: float | None = None  # set by the first failure: the wait begins then

    async def open(self, opening: Callable[[], Awaitable[T]]) -> T:
        """Return what `opening` returns, retrying it while it raises StoreUnavailable; at the end raise that error."""
        away: StoreUnavailable | None = None
        for tries in itertools.count():
            try:
                resource = await opening()
            except StoreRefused:
                raise
            except StoreUnavailable as error:
                away = error
                await asyncio.sleep(self._pause_s(tries, away))
            else:
                if away is not None:
                    log.info("%s is there", away.waits_for)
                return resource
        raise AssertionError  # the count has no end

    def _pause_s(self, tries: int, away: StoreUnavailable) -> float:
        """Return the time until the next try, after logging it; raise `away` if no time is left."""
        pause_s = pause_after(tries, SHORTEST_PAUSE_S, LONGEST_PAUSE_S, jitter=0.5)
        pause_s += getattr(away, "retry_after_s", 0.0)
        now = time.monotonic()
        self._until = now + self._wait_s if self._until is None else self._until
        left_s = self._until - now
        if left_s <= 0:
            raise away
        reason = without_passwords(str(away))
        log.warning("waiting for %s, for up to %.0f s (--wait): %s", away.waits_for, max(left_s, 1), reason)
        return min(pause_s, left_s)


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Inside the block, a signal interrupts what the current task awaits and raises StopRequested."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine of a task calls it
    stops = 0

    def stop() -> None:
        nonlocal stops
        stops += 1
        log.info("stopping")
        task.cancel()

    for number in SIGNALS:
        loop.add_signal_handler(number, stop)
    try:
        yield
    except asyncio.CancelledError:
        if not stops:
            raise
        task.uncancel()
        raise StopRequested from None
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
