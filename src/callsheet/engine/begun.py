"""Tell begun jobs from jobs that are only `running` in the store.

A job that is claimed ahead is `running` in the store and only waits inside the worker, and short jobs end before a
write about their start would be worthwhile. So such a claim's owner is `NAME~+NONCE`, and a document with this name
lists the jobs that have begun and did not end within a moment. If the worker dies, an unlisted job has not begun, or
was short, and no attempt is counted. A job that was lost with its worker before, for any reason, is always listed
before it begins: if it kills its worker, the attempt counts.

A claim of the control plane has begun after the worker's next heartbeat or move, because the response to the claim may
be lost. A worker that is killed before its first request looks the same, so a job lost like that once counts as begun
the next time. A worker with direct store access records which responses it never received: see `unheard`.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from callsheet.kernel.commands import LOST_EARLY
from callsheet.kernel.errors import DocumentConflict
from callsheet.store.protocol import Document

from .unheard import is_within, windows_of

if TYPE_CHECKING:
    from callsheet.kernel.job import Job
    from callsheet.store.protocol import Store

KIND = "begun"
AHEAD = "~+"  # stored in two rows of each short job, so kept short
LEASE_TOKEN = re.compile(r"~[0-9a-f]{64}$").search
KEPT_MS = 30 * 86_400_000  # lists of killed workers are deleted after this time


class BegunJobs:
    """The list of one worker process, written only by this process. `owner` owns the worker's claims ahead."""

    def __init__(self, store: Store, worker_id: str) -> None:
        self.owner = f"{worker_id}{AHEAD}{secrets.token_hex(3)}"
        self._store = store
        self._version = 0

    async def write(self, job_ids: Collection[str]) -> None:
        """Replace the list by these jobs; raises StoreError. A write whose answer was lost is repeated."""
        now = await self._store.now()
        if not self._version:
            await _sweep(self._store, now)
        body = json.dumps({"at": now, "jobs": list(job_ids)})
        try:
            made = await self._store.put_document(Document(KIND, self.owner, body, self._version))
        except DocumentConflict:  # an earlier write of ours was applied, and its answer was lost
            (known,) = await self._store.documents(KIND, self.owner)
            made = await self._store.put_document(known._replace(body=body))
        self._version = made.version

    async def remove(self) -> None:
        """Delete the list, once the worker holds no claims."""
        if self._version:
            await self._store.delete_document(KIND, self.owner)


def is_ahead(job: Job) -> bool:
    """Return whether a running job was claimed ahead."""
    return AHEAD in (job.worker_id or "")


def needs_listing(job: Job) -> bool:
    """Return whether a job must be listed before it begins, because it may have killed an earlier worker."""
    return job.lease_losses > 0 or was_lost_early(job)


def was_lost_early(job: Job) -> bool:
    """Return whether the job's last worker went silent before the job had begun, according to the job's error."""
    return job.error is not None and LOST_EARLY in job.error


def is_remote(job: Job) -> bool:
    """Return whether a running job was claimed over HTTP: its owner contains the hash of a lease token."""
    return LEASE_TOKEN(job.worker_id or "") is not None


def is_unconfirmed(job: Job) -> bool:
    """Return whether no heartbeat or event followed the claim."""
    heard_at = max(job.heartbeat_at or 0, job.event_ms)
    return job.attempt_started_at is None or heard_at <= job.attempt_started_at


async def lost_early(store: Store, jobs: Sequence[Job]) -> frozenset[str]:
    """Return the ids of jobs that have not begun, according to the records of their silent workers."""
    ahead = [job for job in jobs if is_ahead(job)]
    lists = {owner: await _listed(store, owner) for owner in _owners(ahead)}
    waited = [job for job in ahead if job.job_id not in lists[job.worker_id or ""]]
    silent = [job for job in jobs if is_unconfirmed(job) and not is_ahead(job)]
    remote = [
        job for job in silent if is_remote(job) and job.attempt_started_at is not None and not was_lost_early(job)
    ]
    local = [job for job in silent if not is_remote(job)]
    windows = {owner: await windows_of(store, owner) for owner in _owners(local)}
    unheard = [job for job in local if is_within(job, windows[job.worker_id or ""])]
    return frozenset(job.job_id for job in (*waited, *remote, *unheard))


def _owners(jobs: Sequence[Job]) -> list[str]:
    """Return the owners without duplicates in job order, so that the store is read in the same order each time."""
    return list(dict.fromkeys(job.worker_id or "" for job in jobs))


async def _listed(store: Store, owner: str) -> frozenset[str]:
    documents = await store.documents(KIND, owner)
    return frozenset(json.loads(documents[0].body)["jobs"]) if documents else frozenset()


async def _sweep(store: Store, now: int) -> None:
    """Delete the lists of workers that were killed long ago."""
    for document in await store.documents(KIND):
        if json.loads(document.body)["at"] < now - KEPT_MS:
            await store.delete_document(KIND, document.id)
