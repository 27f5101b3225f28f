"""The pool of the catalogue: the engine's with other settings, for a search plans other than by indexes alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, TypeVar

from callsheet.store.postgres.connection import SETTINGS, Database
from callsheet.store.queries import Queries

T = TypeVar("T")
Q = Queries("callsheet.catalog.postgres")
KEPT = ("jit", "lock_timeout", "idle_in_transaction_session_timeout", "tcp_keepalives_idle", "tcp_keepalives_interval")


class CatalogDatabase(Database):
    """A small pool. `read` sees one state of the database however many statements it takes."""

    settings: ClassVar[Mapping[str, str]] = {
        "application_name": "callsheet catalogue",
        **{name: SETTINGS[name] for name in KEPT},
    }
    transaction_settings: ClassVar[str] = Q.plan_freely

    async def read(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """All of `work` in one transaction that writes nothing."""
        async with self._session() as session, session.transaction(isolation="repeatable_read", readonly=True):
            if self.target.pooled:
                await session.execute(self.transaction_settings)
            return await work(session)
