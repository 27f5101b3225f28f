"""Lease tokens: 256 bits that prove a claim. The store keeps only a token's hash, inside the claim's owner.

A job's `worker_id` is `name~hash`, so write fences and the attempt history include the token. With a
`claim_request_id` the token is derived from that id: a repeated claim request finds the same jobs again.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from callsheet.engine.system_secrets import LEASE_TOKENS, Sealers, system_secret
from callsheet.http.problems import Problem
from callsheet.kernel.job import Job, Outcome, Status
from callsheet.kernel.new_jobs import IS_UUID

if TYPE_CHECKING:
    from callsheet.engine import Engine
    from callsheet.store.protocol import Store

    from .binding import Holder


class Proof(NamedTuple):
    """A worker's proof of its lease: job and token. Requests that end an attempt also name the attempt."""

    job_id: str
    token: str
    attempt_id: str | None = None


class Lease(NamedTuple):
    """The job and claim that a token proves. `outcome` is how the attempt ended, None while the attempt runs."""

    job: Job
    claim_version: int
    outcome: Outcome | None

    @property
    def live(self) -> bool:
        """Return True if the job is running under this claim."""
        return self.job.status is Status.RUNNING and self.job.claim_version == self.claim_version

    def lost_problem(self) -> Problem:
        """Return the Problem `lease_lost` for a worker whose claim has ended."""
        return Problem(
            "lease_lost",
            "this lease is over; stop the work and upload nothing",
            ok=False,
            current_attempt=self.job.attempt_count,
        )


def new_token() -> str:
    """Return a new random lease token."""
    return secrets.token_urlsafe(32)


class Tokens:
    """Derives lease tokens from claim request ids: the same worker and request id always give the same token."""

    def __init__(self, store: Store, sealer: Sealers = lambda: None) -> None:
        self._store, self._sealer = store, sealer
        self._secret: bytes | None = None

    async def repeatable(self, worker_id: str, claim_request_id: str) -> str:
        """Return the lease token of this worker's claim request."""
        secret = self._secret = self._secret or await self._read()
        digest = hmac.new(secret, json.dumps([worker_id, claim_request_id]).encode(), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    async def _read(self) -> bytes:
        return await system_secret(self._store, LEASE_TOKENS, self._sealer())


def owner(worker_id: str, token: str) -> str:
    """Return the claim's owner in the form that the store keeps: `worker_id~hash`."""
    return f"{worker_id}~{hashlib.sha256(token.encode('utf-8', 'replace')).hexdigest()}"


async def prove(engine: Engine, worker: Holder, proofs: Sequence[Proof]) -> list[Lease | Problem]:
    """Return the lease of each proof, or Problem `job_not_found` or `forbidden`; live leases need one store read.

    Jobs outside the worker's binding are `job_not_found`, even with a valid token.
    """
    job_ids = list({p.job_id for p in proofs if IS_UUID(p.job_id)})
    jobs = {job.job_id: job for job in await engine.store.get(job_ids) if job is not None} if job_ids else {}
    jobs = {job_id: job for job_id, job in jobs.items() if worker.may_have(job)}
    return [await _prove(engine, jobs.get(p.job_id), worker.worker_id, p) for p in proofs]


async def prove_one(engine: Engine, worker: Holder, proof: Proof) -> Lease:
    """Return the lease of one proof; raises Problem."""
    (lease,) = await prove(engine, worker, [proof])
    if isinstance(lease, Problem):
        raise lease
    return lease


async def _prove(engine: Engine, job: Job | None, worker_id: str, proof: Proof) -> Lease | Problem:
    if job is None:
        return Problem("job_not_found", f"no job {proof.job_id[:100]}", ok=False)
    mine = owner(worker_id, proof.token).encode()
    if (
        job.status is Status.RUNNING
        and hmac.compare_digest((job.worker_id or "").encode(), mine)
        and proof.attempt_id in (None, str(job.claim_version))
    ):
        return Lease(job, job.claim_version, None)
    for attempt in reversed(await engine.store.attempts(job.job_id)):
        same = hmac.compare_digest(attempt.worker_id.encode(), mine)
        if same and proof.attempt_id in (None, str(attempt.claim_version)):
            return Lease(job, attempt.claim_version, attempt.outcome)
    return Problem("forbidden", "this token is not of a lease that this worker had on this job", ok=False)
