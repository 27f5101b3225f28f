"""Encrypted credentials of jobs. Most jobs have none and never reach these functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from callsheet.store.queries import Queries
from callsheet.store.rows import credentials_of

from .ids import known_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from callsheet.kernel.job import Credentials, NewJob

    from .connection import Database

Q = Queries("callsheet.store.postgres")


async def keep_credentials(session: Any, fresh: Sequence[NewJob]) -> None:
    """Write the credentials of new jobs, in the caller's transaction."""
    rows = [(new.job_id, new.requester_id, *new.credentials) for new in fresh if new.credentials is not None]
    if rows:
        await session.execute(Q.keep_credentials, *(list(column) for column in zip(*rows, strict=True)))


async def credentials(db: Database, job_ids: Sequence[str]) -> list[Credentials | None]:
    """Return the credentials of jobs, in the order of `job_ids`."""
    found = {row[0]: credentials_of(row) for row in await db.fetch(Q.credentials, known_ids(job_ids))}
    return [found.get(job_id) for job_id in job_ids]


async def replace_credentials(db: Database, changes: Sequence[tuple[Credentials, Credentials]]) -> list[bool]:
    """Replace the credentials of each pair unless the stored ones have changed; return which were replaced.

    Pairs are sorted by job id, against deadlocks.
    """
    first = {_fence(was): becomes for was, becomes in reversed(changes) if known_ids([was.job_id])}
    rows = sorted((*fence, *becomes.envelope) for fence, becomes in first.items())
    columns = (list(column) for column in zip(*rows, strict=True))
    done = set(map(tuple, await db.fetch(Q.replace_credentials, *columns))) if rows else set()
    answers = []
    for was, _ in changes:
        answers.append(_fence(was) in done)
        done.discard(_fence(was))  # a repeated change is reported as not replaced
    return answers


def _fence(was: Credentials) -> tuple[str, int, str]:
    return was.job_id, was.envelope.credential_version, was.envelope.storage_creds_dek_wrapped


async def credentials_under(db: Database, kek_id: str, after: str, limit: int) -> list[Credentials]:
    """Return the credentials that a KEK wraps, ordered by job id."""
    return [credentials_of(row) for row in await db.fetch(Q.credentials_under, kek_id, after or None, limit)]
