"""Audit log verbs: one statement for a batch of entries, one statement for a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callsheet.store.queries import Queries
from callsheet.store.rows import audit_page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from callsheet.kernel.audit import AuditEntry
    from callsheet.store.audit import AuditPage, AuditQuery

    from .connection import Database

Q = Queries("callsheet.store.postgres")
COLUMNS = ("requester_id", "action", "actor", "target", "outcome", "address", "request_id", "details")


async def append(db: Database, entries: Sequence[AuditEntry], now: int | None) -> list[str]:
    """Write entries and return their ids."""
    if not entries:
        return []
    columns = ([getattr(entry, name) for entry in entries] for name in COLUMNS)
    return [f"{at}-{seq}" for at, seq in await db.fetch(Q.audit_append, now, *columns)]


async def find(db: Database, query: AuditQuery) -> AuditPage:
    """Return a page of entries, newest first."""
    sql = Q.audit_find if query.requester_id is None else Q.audit_find_of_requester
    family = query.action.endswith(".") if query.action else False
    rows = await db.fetch(
        sql,
        query.requester_id,
        None if family else query.action,
        query.action if family else None,
        query.actor,
        query.since,
        query.until,
        *(query.place or (None, None)),
        query.limit,
    )
    return audit_page(rows, query.limit)
