"""Open a store for one command, and find jobs in it by the beginning of their ids."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from callsheet.app.sealing import system_sealer
from callsheet.catalog import BESIDE_REDIS, catalog_url, open_catalog
from callsheet.engine import Engine
from callsheet.kernel.errors import JobNotFound, SchemaMismatch, StoreError
from callsheet.kernel.new_jobs import IS_UUID
from callsheet.store import store_from_url
from callsheet.store.protocol import JobQuery, Store
from callsheet.store.sqlite import SqliteStore

from .failures import Told, WrongInput
from .passwords import check_url, without_password

if TYPE_CHECKING:
    from callsheet.catalog.protocol import Catalog

log = logging.getLogger("callsheet.cli")
T = TypeVar("T")
SHORTEST_PREFIX = 8
PAGE = 500
PAGES = 10
INTERRUPTED = 130


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine; Ctrl-C ends it without a traceback."""
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None


@contextlib.asynccontextmanager
async def opened(url: str, *, must_exist: bool = True, redis_url: str | None = None) -> AsyncIterator[Engine]:
    """An open engine. A SQLite file that is not there is an error: an empty store would hide a wrong path."""
    check_url(url)
    store = store_from_url(url)
    if must_exist and (path := missing_file(store)) is not None:
        advice = "name the store with --database-url or CALLSHEET_DATABASE_URL; `callsheet migrate` makes a new one"
        raise Told(f"there is no file {path} ({without_password(url)}); {advice}")
    async with Engine(store, redis_url=redis_url) as engine:
        engine.sealer = system_sealer
        yield engine


@contextlib.asynccontextmanager
async def opened_catalog(asked: str | None, database_url: str) -> AsyncIterator[Catalog | None]:
    """The catalogue of videos, None where there is none: it is off, was never made, or nobody said where it is."""
    url = catalog_url(asked, database_url)
    if url is None or (url == BESIDE_REDIS and not asked):
        yield None
        return
    try:
        catalog = open_catalog(url)
        await catalog.open()
    except (SchemaMismatch, StoreError) as error:
        if asked:
            raise
        log.warning("there is no search in videos: %s", error)
        yield None
        return
    try:
        yield catalog
    finally:
        await catalog.close()


def missing_file(store: Store) -> Path | None:
    """The file of a SQLite store when it does not exist."""
    if not isinstance(store, SqliteStore) or store.target.in_memory or Path(store.target.path).exists():
        return None
    return Path(store.target.path)


def beside(database_url: str) -> str:
    """Where objects are kept unless somebody says it: a folder beside the SQLite file; nowhere for other stores."""
    store = store_from_url(database_url)
    if not isinstance(store, SqliteStore):
        return ""
    if store.target.in_memory:
        return "memory:"
    path = Path(store.target.path).absolute()
    return path.with_name(f"{path.stem}-objects").as_uri()


async def job_ids(engine: Engine, asked: Sequence[str]) -> list[str]:
    """Whole ids for ids or their unique beginnings; raises JobNotFound, or WrongInput for an ambiguous one."""
    prefixes = {text.lower() for text in asked if not IS_UUID(text.lower())}
    for prefix in prefixes:
        if len(prefix) < SHORTEST_PREFIX:
            raise WrongInput(f"{prefix!r} is too short; write at least {SHORTEST_PREFIX} characters of a job's id")
    found = await _beginning_with(engine, prefixes) if prefixes else {}
    return [found.get(text.lower(), text.lower()) for text in asked]


async def _beginning_with(engine: Engine, prefixes: set[str]) -> dict[str, str]:
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
