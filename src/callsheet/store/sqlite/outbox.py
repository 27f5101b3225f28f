"""Select the outbox events for a claim, inside a SQLite transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callsheet.store.queries import Queries

if TYPE_CHECKING:
    from callsheet.kernel.job import NewOutboxEvent
    from callsheet.store.outbox import ClaimShares

    from .connection import Db

Q = Queries("callsheet.store.sqlite")


def outbox_row(out: NewOutboxEvent, job_id: str, requester_id: str, body: str, now: int) -> tuple[object, ...]:
    """Return the parameters of `add_outbox`."""
    return (out.event_id, job_id, requester_id, out.endpoint, body, now, out.destination)


def claimable(db: Db, now: int, limit: int, shares: ClaimShares) -> list[int]:
    """Return the `seq` of each event to claim: expired leases, then the oldest of each destination up to its share."""
    limits = {(row.requester_id, row.destination): row.limit for row in shares.limits}
    without = frozenset(shares.without)

    def limit_of(requester_id: str, destination: str) -> int:
        return 0 if requester_id in without else max(0, limits.get((requester_id, destination), shares.each))

    lost = [row[2] for row in db.execute(Q.outbox_lost, (now,)).fetchall() if limit_of(row[0], row[1])][:limit]
    due: list[tuple[int, int]] = []
    if len(lost) < limit:
        for requester_id, destination in db.execute(Q.outbox_destinations).fetchall():
            share = min(limit_of(requester_id, destination), limit - len(lost))
            if share:
                due += db.execute(Q.outbox_due, (requester_id, destination, now, share)).fetchall()
    return sorted(lost + [seq for _, seq in sorted(due)[: limit - len(lost)]])
