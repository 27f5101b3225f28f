"""Rows beside the jobs, inside a SQLite transaction: credentials, outbox events, audit entries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from callsheet.kernel.audit import AuditEntry
from callsheet.kernel.job import Credentials, NewJob, NewOutboxEvent
from callsheet.store.queries import Queries

if TYPE_CHECKING:
    from callsheet.store.outbox import ClaimShares

    from .connection import Db

Q = Queries("callsheet.store.sqlite")


def keep_credentials(db: Db, new: NewJob) -> None:
    """Write a new job's credentials, if the job has credentials."""
    if new.credentials is not None:
        db.execute(Q.keep_credentials, (new.job_id, new.requester_id, *new.credentials))


def replace_credentials(db: Db, changes: Sequence[tuple[Credentials, Credentials]]) -> list[bool]:
    """Replace the credentials of each pair unless the stored ones have changed; return which were replaced."""
    answers = []
    for was, becomes in changes:
        fence = (was.job_id, was.envelope.credential_version, was.envelope.storage_creds_dek_wrapped)
        answers.append(bool(db.execute(Q.replace_credentials, (*fence, *becomes.envelope)).fetchone()))
    return answers


def forget_credentials(db: Db, job_ids: Iterable[str]) -> None:
    """Delete the credentials of ended jobs; costs one read if the store holds no credentials."""
    if db.execute(Q.any_credentials).fetchone():
        db.executemany(Q.forget_credentials, [(job_id,) for job_id in job_ids])


def outbox_row(out: NewOutboxEvent, job_id: str, requester_id: str, body: str, now: int) -> tuple[object, ...]:
    """Return the parameters of `add_outbox`."""
    return (out.event_id, job_id, requester_id, out.endpoint, body, now, out.destination)


def claimable(db: Db, now: int, limit: int, shares: ClaimShares) -> list[int]:
    """Return the `seq` of each event to claim: expired leases, then the oldest of each destination up to its share."""
    limits = {(row.requester_id, row.destination): row.limit for row in shares.limits}
    without = frozenset(shares.without)

    def limit_of(requester_id: str, destination: str) -> int:
        return 0 if requester_id in without else max(0, limits.get((requester_id, destination), shares.each))

    expired_seqs = [row[2] for row in db.execute(Q.outbox_lost, (now,)).fetchall() if limit_of(row[0], row[1])][:limit]
    due: list[tuple[int, int]] = []
    if len(expired_seqs) < limit:
        for requester_id, destination in db.execute(Q.outbox_destinations).fetchall():
            share = min(limit_of(requester_id, destination), limit - len(expired_seqs))
            if share:
                due += db.execute(Q.outbox_due, (requester_id, destination, now, share)).fetchall()
    return sorted(expired_seqs + [seq for _, seq in sorted(due)[: limit - len(expired_seqs)]])


def append_audit(db: Db, entries: Sequence[AuditEntry], now: int) -> list[str]:
    """Write entries of the audit log and return their ids."""
    rows = [
        db.execute(
            Q.audit_append,
            (now, e.requester_id, e.action, e.actor, e.target, e.outcome, e.address, e.request_id, e.details),
        ).fetchone()
        for e in entries
    ]
    return [f"{now}-{seq}" for (seq,) in rows]
