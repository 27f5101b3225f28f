"""Encrypted credentials inside a SQLite transaction. Most jobs have none and never reach these functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callsheet.store.queries import Queries
from callsheet.store.rows import credentials_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from callsheet.kernel.job import Credentials, NewJob

    from .connection import Db

Q = Queries("callsheet.store.sqlite")


def keep_credentials(db: Db, new: NewJob) -> None:
    """Write a new job's credentials, if the job has credentials."""
    if new.credentials is not None:
        db.execute(Q.keep_credentials, (new.job_id, new.requester_id, *new.credentials))


def credentials(db: Db, job_ids: Sequence[str]) -> list[Credentials | None]:
    """Return the credentials of jobs, in the order of `job_ids`."""
    rows = [db.execute(Q.credentials, (job_id,)).fetchone() for job_id in job_ids]
    return [credentials_of(row) if row else None for row in rows]


def replace_credentials(db: Db, changes: Sequence[tuple[Credentials, Credentials]]) -> list[bool]:
    """Replace the credentials of each pair unless the stored ones have changed; return which were replaced."""
    answers = []
    for was, becomes in changes:
        fence = (was.job_id, was.envelope.credential_version, was.envelope.storage_creds_dek_wrapped)
        answers.append(bool(db.execute(Q.replace_credentials, (*fence, *becomes.envelope)).fetchone()))
    return answers


def credentials_under(db: Db, kek_id: str, after: str, limit: int) -> list[Credentials]:
    """Return the credentials that a KEK wraps, ordered by job id."""
    return [credentials_of(row) for row in db.execute(Q.credentials_under, (kek_id, after, limit)).fetchall()]


def forget_credentials(db: Db, job_ids: Iterable[str]) -> None:
    """Delete the credentials of ended jobs; costs one read if the store holds no credentials."""
    if db.execute(Q.any_credentials).fetchone():
        db.executemany(Q.forget_credentials, [(job_id,) for job_id in job_ids])
