"""Rows beside the jobs in PostgreSQL: credentials of jobs, and entries of the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from callsheet.kernel.audit import AuditEntry
from callsheet.kernel.job import Credentials, NewJob
from callsheet.store.queries import Queries

from .columns import known_ids

if TYPE_CHECKING:
    from .connection import Database

Q = Queries("callsheet.store.postgres")
COLUMNS = ("requester_id", "action", "actor", "target", "outcome", "address", "request_id", "details")


async def keep_credentials(session: Any, fresh: Sequence[NewJob]) -> None:
    """Write the credentials of new jobs, in the caller's transaction."""
    rows = [(new.job_id, new.requester_id, *new.credentials) for new in fresh if new.credentials is not None]
    if rows:
        await session.execute(Q.keep_credentials, *(list(column) for column in zip(*rows, strict=True)))


async def replace_credentials(db: Database, changes: Sequence[tuple[Credentials, Credentials]]) -> list[bool]:
    """Replace the credentials of each pair unless the stored ones have changed; return which were replaced.

    Pairs are sorted by job id, against deadlocks.
    """
    first = {_fence(was): becomes for was, becomes in reversed(changes) if known_ids([was.job_id])}
    rows = sorted((*fence, *becomes.envelope) for fence, becomes in first.items())
    columns = (list(column) for column in zip(*rows, strict=True))
    replaced_fences = set(map(tuple, await db.fetch(Q.replace_credentials, *columns))) if rows else set()
    answers = []
    for was, _ in changes:
        answers.append(_fence(was) in replaced_fences)
        replaced_fences.discard(_fence(was))  # a repeated change is reported as not replaced
    return answers


def _fence(was: Credentials) -> tuple[str, int, str]:
    return was.job_id, was.envelope.credential_version, was.envelope.storage_creds_dek_wrapped


async def append_audit(db: Database, entries: Sequence[AuditEntry], now: int | None) -> list[str]:
    """Write entries of the audit log and return their ids."""
    if not entries:
        return []
    columns = ([getattr(entry, name) for entry in entries] for name in COLUMNS)
    return [f"{at}-{seq}" for at, seq in await db.fetch(Q.audit_append, now, *columns)]
