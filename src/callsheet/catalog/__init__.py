"""What is known of videos: their text, when it is on screen, and how it is found. On SQLite and on PostgreSQL alike.

`open_catalog(url)` makes one that is not yet open. The catalogue is normally in the database of the jobs.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from callsheet.kernel.errors import StoreError, UnknownStore

if TYPE_CHECKING:
    from .protocol import Catalog

SQLITE = ("sqlite", "libsql")
POSTGRES = ("postgresql", "postgres")
OFF = "off"
BESIDE_REDIS = "sqlite:///callsheet-catalog.db"


def catalog_url(asked: str | None, database_url: str) -> str | None:
    """Where the catalogue is: where CALLSHEET_CATALOG_URL says, else with the jobs; None when it is `off`.

    Redis keeps no tables, so beside it the catalogue is a file of its own.
    """
    if asked:
        return None if asked == OFF else asked
    return database_url if database_url.partition(":")[0] in (*SQLITE, *POSTGRES) else BESIDE_REDIS


def open_catalog(url: str) -> Catalog:
    """The catalogue, not yet open, of `sqlite:///file.db` or `postgresql://…`; raises UnknownStore."""
    scheme = url.partition(":")[0]
    try:
        if scheme in SQLITE:
            from .sqlite.store import SqliteCatalog  # noqa: PLC0415 - a driver is loaded only when it is used

            return SqliteCatalog.from_url(url)
        if scheme in POSTGRES:
            from .postgres.store import PostgresCatalog  # noqa: PLC0415

            return PostgresCatalog.from_url(url)
    except ModuleNotFoundError as error:
        extra = "postgres" if error.name == "asyncpg" else "libsql" if error.name == "libsql" else "media"
        raise StoreError(f"the catalogue needs {error.name}: pip install 'callsheet[{extra}]'") from error
    raise _unknown(scheme)


async def migrate_catalog(url: str) -> list[str]:
    """Bring the catalogue's schema to this program's version; the names of what ran. Needs no extra but the driver."""
    scheme = url.partition(":")[0]
    try:
        if scheme in SQLITE:
            from .sqlite.keeping import migrate_file  # noqa: PLC0415

            return await migrate_file(url)
        if scheme in POSTGRES:
            from .postgres.schema import migrate_database  # noqa: PLC0415

            return await migrate_database(url)
    except ModuleNotFoundError as error:
        extra = "postgres" if error.name == "asyncpg" else "libsql"
        raise StoreError(f"the driver for {scheme} is missing: pip install 'callsheet[{extra}]'") from error
    raise _unknown(scheme)


async def migrate_beside(asked: str | None, database_url: str) -> list[str]:
    """What `callsheet migrate` does after the store's own migrations; the names of what ran.

    Nothing where nobody asked and no videos can be searched: the extra `media` is not there, or the jobs are in Redis.
    Files are migrated when they are opened, and memory is gone when it is closed.
    """
    url = catalog_url(asked, database_url)
    if url is None or ":memory:" in url:
        return []
    if not asked and (url == BESIDE_REDIS or importlib.util.find_spec("rapidfuzz") is None):
        return []
    return await migrate_catalog(url)


def _unknown(scheme: str) -> UnknownStore:
    return UnknownStore(f"no catalogue for scheme {scheme!r}; use sqlite:///file.db or postgresql://…, or `off`")
