"""Open a store by its URL. The three stores are packages beside this file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callsheet.kernel.errors import StoreError, UnknownStore

if TYPE_CHECKING:
    from .protocol import Store


def store_from_url(url: str) -> Store:
    """Return the store of a URL, not yet open; raises UnknownStore, or StoreError if the store's driver is missing.

    URLs: `sqlite:///file`, `sqlite::memory:`, `libsql:///file`, `postgresql://…`, `redis://…`.
    """
    scheme = url.partition(":")[0]
    try:
        if scheme in ("sqlite", "libsql"):
            from .sqlite import SqliteStore  # noqa: PLC0415 - a store's driver is loaded only when it is used

            return SqliteStore.from_url(url)
        if scheme in ("postgresql", "postgres"):
            from .postgres import PostgresStore  # noqa: PLC0415

            return PostgresStore.from_url(url)
        if scheme in ("redis", "rediss", "valkey"):
            from .redis import RedisStore  # noqa: PLC0415

            return RedisStore.from_url(url)
    except ValueError:
        advice = "write special characters of a password as %2F (/), %40 (@), %3A (:)"
        raise UnknownStore(f"the URL of this {scheme} store cannot be read; {advice}") from None
    except ModuleNotFoundError as error:
        extra = {
            "sqlite": "libsql",
            "libsql": "libsql",
            "postgres": "postgres",
            "postgresql": "postgres",
        }.get(scheme, "redis")
        raise StoreError(
            f"the driver for {scheme} is missing ({error.name}): pip install 'callsheet[{extra}]'"
        ) from error
    raise UnknownStore(
        f"no store for scheme {scheme!r}; use sqlite:///file.db, sqlite::memory:, postgresql://… or redis://…"
    )
