"""Audit log verbs inside a SQLite transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callsheet.store.queries import Queries
from callsheet.store.rows import audit_page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from callsheet.kernel.audit import AuditEntry
    from callsheet.store.audit import AuditPage, AuditQuery

    from .connection import Db

Q = Queries("callsheet.store.sqlite")


def append(db: Db, entries: Sequence[AuditEntry], now: int) -> list[str]:
    """Write entries and return their ids."""
    rows = [
        db.execute(
            Q.audit_append,
            (now, e.requester_id, e.action, e.actor, e.target, e.outcome, e.address, e.request_id, e.details),
        ).fetchone()
        for e in entries
    ]
    return [f"{now}-{seq}" for (seq,) in rows]


def find(db: Db, query: AuditQuery) -> AuditPage:
    """Return a page of entries, newest first."""
    sql = Q.audit_find if query.requester_id is None else Q.audit_find_of_requester
    at, seq = query.place or (None, None)
    family = query.action.endswith(".") if query.action else False
    rows = db.execute(
        sql,
        (
            query.requester_id,
            None if family else query.action,
            query.action if family else None,
            query.actor,
            query.since,
            query.until,
            at,
            seq,
            query.limit,
        ),
    ).fetchall()
    return audit_page(rows, query.limit)
