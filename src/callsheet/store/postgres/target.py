"""The database's address: a URL without our own options."""

from __future__ import annotations

from typing import NamedTuple, Self
from urllib.parse import parse_qsl, urlencode, urlsplit

from callsheet.kernel.errors import UnknownStore

TRUE = ("1", "true", "yes", "on")


class Target(NamedTuple):
    """How to reach the database. `direct_dsn` is for LISTEN; None behind a transaction pooler."""

    dsn: str
    direct_dsn: str | None
    pooled: bool = False
    pool_size: int = 5

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Parse `postgresql://…`; our options are `pgbouncer=true`, with it `direct_url=…`, and `pool_size=…`.

        Raises UnknownStore.
        """
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query))
        pooled = options.pop("pgbouncer", "").lower() in TRUE
        direct = options.pop("direct_url", None)
        size = options.pop("pool_size", "5")
        if parts.scheme not in ("postgresql", "postgres"):
            raise UnknownStore(f"{parts.scheme!r} is not PostgreSQL; use postgresql://user@host:5432/database")
        if not size.isdigit() or int(size) < 1:
            raise UnknownStore(f"pool_size={size!r} is not a number of connections; use 1 or more")
        dsn = parts._replace(query=urlencode(options)).geturl()
        return cls(dsn, direct or (None if pooled else dsn), pooled, int(size))
