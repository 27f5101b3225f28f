"""Encrypted credentials inside a SQLite transaction. Most jobs have none: then none of this is called."""

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
    """Write those of a new job."""
    if new.credentials is not None:
        db.execute(Q.keep_credentials, (new.job_id, new.requester_id, *new.credentials))


def credentials(db: Db, job_ids: Sequence[str]) -> list[Credentials | None]:
    """Those of jobs, in the order asked."""
    rows = [db.execute(Q.credentials, (job_id,)).fetchone() for job_id in job_ids]
    return [credentials_of(row) if row else None for row in rows]


def replace_credentials(db: Db, changes: Sequence[tuple[Credentials, Credentials]]) -> list[bool]:
    """Each where the first of the pair still stands."""
    answers = []
    for was, becomes in changes:
        fence = (was.job_id, was.envelope.credential_version, was.envelope.storage_creds_dek_wrapped)
        answers.append(bool(db.execute(Q.replace_credentials, (*fence, *becomes.envelope)).fetchone()))
    return answers


def credentials_under(db: Db, kek_id: str, after: str, limit: int) -> list[Credentials]:
    """Those that a KEK wraps, in order of job id."""
    return [credentials_of(row) for row in db.execute(Q.credentials_under, (kek_id, after, limit)).fetchall()]


def forget_credentials(db: Db, job_ids: Iterable[str]) -> None:
    """Delete those of jobs that have ended; one look when the store has none at all."""
    if db.execute(Q.any_credentials).fetchone():
        db.executemany(Q.forget_credentials, [(job_id,) for job_id in job_ids])
