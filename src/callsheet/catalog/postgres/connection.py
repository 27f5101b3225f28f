"""The catalogue's connection pool: the engine's, with settings that let a search be planned without indexes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, TypeVar

from callsheet.store.postgres.connection import SETTINGS, Database
from callsheet.store.queries import Queries

T = TypeVar("T")
Q = Queries("callsheet.catalog.postgres")
KEPT = ("jit", "lock_timeout", "idle_in_transaction_session_timeout", "tcp_keepalives_idle", "tcp_keepalives_interval")


class CatalogDatabase(Database):
    """A small pool. All statements within one `read` see the same snapshot of the database."""

    settings: ClassVar[Mapping[str, str]] = {
        "application_name": "callsheet catalogue",
        **{name: SETTINGS[name] for name in KEPT},
    }
    transaction_settings: ClassVar[str] = Q.plan_freely

    async def read(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Run `work` in one read-only, repeatable-read transaction and return its result."""
        async with self._session() as session, session.transaction(isolation="repeatable_read", readonly=True):
            if self.target.pooled:
                await session.execute(self.transaction_settings)
            return await work(session)
