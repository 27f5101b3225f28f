"""Lease tokens: 256 random bits that prove a claim. The store holds their hash, as a part of the claim's owner.

A job's `worker_id` is `name~hash`, so the fence of every write and the history of attempts know the token too.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING, NamedTuple

from callsheet.http.problems import Problem
from callsheet.kernel.job import Attempt, Job, Status

if TYPE_CHECKING:
    from callsheet.engine import Engine


class Lease(NamedTuple):
    """What a token was found to stand for: the job as it is, and the attempt, ended or not."""

    job: Job
    attempt: Attempt

    @property
    def live(self) -> bool:
        """Whether the claim is the job's present one, and runs."""
        return self.job.status is Status.RUNNING and self.job.claim_version == self.attempt.claim_version

    def lost(self) -> Problem:
        """What is said to a worker whose claim is over."""
        return Problem(
            "lease_lost",
            "this lease is over; stop the work and upload nothing",
            ok=False,
            current_attempt=self.job.attempt_count,
        )


def new_token() -> str:
    """A fresh one."""
    return secrets.token_urlsafe(32)


def owner(worker_id: str, token: str) -> str:
    """The owner of a claim, as the store keeps it."""
    return f"{worker_id}~{hashlib.sha256(token.encode('utf-8', 'replace')).hexdigest()}"


async def find(engine: Engine, job_id: str, worker_id: str, token: str, attempt_id: str | None = None) -> Lease:
    """The lease that a token proves; raises JobNotFound, or Problem `forbidden` for a token that proves nothing."""
    job = await engine.get(job_id)
    mine = owner(worker_id, token)
    for attempt in reversed(await engine.store.attempts(job_id)):
        same = hmac.compare_digest(attempt.worker_id.encode(), mine.encode())
        if same and attempt_id in (None, str(attempt.claim_version)):
            return Lease(job, attempt)
    raise Problem("forbidden", "this token is not of a lease that this worker had on this job", ok=False)
