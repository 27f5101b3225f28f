"""The catalogue of videos: their text, the times when the text is on screen, and the search over it.

It runs on SQLite and on PostgreSQL, normally in the database of the jobs. `open_catalog(url)` makes one, not yet open.
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


def catalog_url(setting: str | None, database_url: str) -> str | None:
    """Return the URL of the catalogue: CALLSHEET_CATALOG_URL if set, else the database of the jobs; None for `off`.

    Redis has no tables: if the jobs are in Redis, the catalogue is a SQLite file in the working directory.
    """
    if setting:
        return None if setting == OFF else setting
    return database_url if database_url.partition(":")[0] in (*SQLITE, *POSTGRES) else BESIDE_REDIS


def open_catalog(url: str) -> Catalog:
    """Return the catalogue, not yet open, of `sqlite:///file.db` or `postgresql://…`; raise UnknownStore for others."""
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
    """Migrate the catalogue's schema and return the names of the migrations. Needs no extra but the database driver."""
    scheme = url.partition(":")[0]
    try:
        if scheme in SQLITE:
            from .sqlite.schema import migrate_file  # noqa: PLC0415

            return await migrate_file(url)
        if scheme in POSTGRES:
            from .postgres.schema import migrate_database  # noqa: PLC0415

            return await migrate_database(url)
    except ModuleNotFoundError as error:
        extra = "postgres" if error.name == "asyncpg" else "libsql"
        raise StoreError(f"the driver for {scheme} is missing: pip install 'callsheet[{extra}]'") from error
    raise _unknown(scheme)


async def migrate_beside(setting: str | None, database_url: str) -> list[str]:
    """Migrate the catalogue after the job store, for `callsheet migrate`; return the names of the migrations.

    Does nothing for an in-memory database, which is lost when it is closed. Without CALLSHEET_CATALOG_URL it also does
    nothing if the jobs are in Redis (opening the catalogue file migrates it) or the extra `media` is not installed.
    """
    url = catalog_url(setting, database_url)
    if url is None or ":memory:" in url:
        return []
    if not setting and (url == BESIDE_REDIS or importlib.util.find_spec("rapidfuzz") is None):
        return []
    return await migrate_catalog(url)


def _unknown(scheme: str) -> UnknownStore:
    return UnknownStore(f"no catalogue for scheme {scheme!r}; use sqlite:///file.db or postgresql://…, or `off`")
