"""Whether the job of a silent worker had begun, and how long a worker may stay silent.

A job that is claimed ahead is `running` in the store and only waits inside the worker, and short jobs end before a
write about their start would be worthwhile. So such a claim's owner is `NAME~+NONCE`, and a document with this name
lists the jobs that have begun and did not end within a moment. If the worker dies, an unlisted job has not begun, or
was short, and no attempt is counted. A job that was lost with its worker before, for any reason, is always listed
before it begins: if it kills its worker, the attempt counts.

A claim of the control plane has begun after the worker's next heartbeat or move, because the response to the claim may
be lost. A worker that is killed before its first request looks the same, so a job lost like that once counts as begun
the next time. A worker with direct store access records which responses it never received, its unheard claims:

If a claim ends in an error, the worker records the time of the request, as soon as the store is back and before its
next claim. If a lease of that worker expires and the claim falls in a recorded window, the job has not begun: its loss
counts no attempt. Another process of the same worker name may have claimed and begun a job in that window. In that
case one loss stays uncounted; the job is marked, and later losses count (`needs_listing`).
"""

from __future__ import annotations

import json
import math
import re
import secrets
import time
from collections.abc import Collection, Sequence
from typing import NamedTuple

from callsheet.kernel.commands import LOST_EARLY
from callsheet.kernel.errors import DocumentConflict
from callsheet.kernel.job import Job
from callsheet.kernel.workers import BEATS_OF_SILENCE, silence_of
from callsheet.store.protocol import Document, Store

UNHEARD_CLAIMS = "unheard"
WINDOWS_KEPT_MS = 86_400_000  # housekeeping notices an expired lease long before that
MOST_WINDOWS = 100
RACES = 20


class Window(NamedTuple):
    """The time window of an unheard claim, in milliseconds by the store's clock."""

    begin: int
    end: int


class UnheardClaims:
    """The unheard claims of one worker, by the local clock until they are written."""

    def __init__(self, store: Store, worker_id: str) -> None:
        self._store, self._worker_id = store, worker_id
        self._since = math.inf

    def add(self, asked_at: float) -> None:
        """Record that a claim requested at this moment of the monotonic clock got no answer."""
        self._since = min(self._since, asked_at)

    async def write(self) -> None:
        """Store the recorded window, if any; raises StoreError and keeps the record."""
        if math.isinf(self._since):
            return
        now = await self._store.now()
        ago_ms = math.ceil((time.monotonic() - self._since) * 1000) + 1
        window = Window(now - ago_ms, now)
        for _ in range(RACES):  # another process of this worker name may write as well
            documents = await self._store.documents(UNHEARD_CLAIMS, self._worker_id)
            earlier = (each for document in documents for each in _windows_in(document))
            windows = [window, *(each for each in earlier if each.end > now - WINDOWS_KEPT_MS)]
            body = json.dumps(windows[:MOST_WINDOWS])
            version = documents[0].version if documents else 0
            try:
                await self._store.put_document(Document(UNHEARD_CLAIMS, self._worker_id, body, version))
            except DocumentConflict:
                continue
            break
        self._since = math.inf


async def windows_of(store: Store, worker_id: str) -> list[Window]:
    """Return the time windows of a worker's unheard claims."""
    return [window for document in await store.documents(UNHEARD_CLAIMS, worker_id) for window in _windows_in(document)]


def is_within(job: Job, windows: list[Window]) -> bool:
    """Return whether the claim of a running job falls in a time window."""
    claimed_at = job.heartbeat_at if job.attempt_started_at is None else job.attempt_started_at
    return claimed_at is not None and any(window.begin <= claimed_at <= window.end for window in windows)


def _windows_in(document: Document) -> list[Window]:
    return [Window(*window) for window in json.loads(document.body)]


BEGUN_JOBS = "begun"
AHEAD = "~+"  # stored in two rows of each short job, so kept short
LEASE_TOKEN = re.compile(r"~[0-9a-f]{64}$").search
LISTS_KEPT_MS = 30 * 86_400_000  # lists of killed workers are deleted after this time


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
            await _drop_old_lists(self._store, now)
        body = json.dumps({"at": now, "jobs": list(job_ids)})
        try:
            document = await self._store.put_document(Document(BEGUN_JOBS, self.owner, body, self._version))
        except DocumentConflict:  # an earlier write of ours was applied, and its answer was lost
            (stored_document,) = await self._store.documents(BEGUN_JOBS, self.owner)
            document = await self._store.put_document(stored_document._replace(body=body))
        self._version = document.version

    async def remove(self) -> None:
        """Delete the list, once the worker holds no claims."""
        if self._version:
            await self._store.delete_document(BEGUN_JOBS, self.owner)


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
    lists = {owner: await _job_list(store, owner) for owner in _owners(ahead)}
    unlisted = [job for job in ahead if job.job_id not in lists[job.worker_id or ""]]
    silent = [job for job in jobs if is_unconfirmed(job) and not is_ahead(job)]
    remote = [
        job for job in silent if is_remote(job) and job.attempt_started_at is not None and not was_lost_early(job)
    ]
    local = [job for job in silent if not is_remote(job)]
    windows = {owner: await windows_of(store, owner) for owner in _owners(local)}
    unheard = [job for job in local if is_within(job, windows[job.worker_id or ""])]
    return frozenset(job.job_id for job in (*unlisted, *remote, *unheard))


def _owners(jobs: Sequence[Job]) -> list[str]:
    """Return the owners without duplicates in job order, so that the store is read in the same order each time."""
    return list(dict.fromkeys(job.worker_id or "" for job in jobs))


async def _job_list(store: Store, owner: str) -> frozenset[str]:
    documents = await store.documents(BEGUN_JOBS, owner)
    return frozenset(json.loads(documents[0].body)["jobs"]) if documents else frozenset()


async def _drop_old_lists(store: Store, now: int) -> None:
    """Delete the lists of workers that were killed long ago."""
    for document in await store.documents(BEGUN_JOBS):
        if json.loads(document.body)["at"] < now - LISTS_KEPT_MS:
            await store.delete_document(BEGUN_JOBS, document.id)


REMOTE_BEAT_S = 4.0  # the contract asks for no heartbeat at once: two fit into the lease of an unconfirmed claim


def silence_ms_of(job: Job) -> int | None:
    """Return two heartbeats of the job's worker in milliseconds; None without a worker or lease of ours.

    If cancellation was requested before, the lease has that length already and its present length is returned.
    """
    if job.worker_id is None or job.lease_expires_at is None or job.heartbeat_at is None:
        return None
    lease_ms = job.lease_expires_at - job.heartbeat_at
    if job.cancel_requested_at is not None:
        return lease_ms
    return min(lease_ms, remote_silence_ms(REMOTE_BEAT_S)) if is_remote(job) else silence_of(lease_ms)


def remote_silence_ms(beat_s: float) -> int:
    """Return two heartbeats in milliseconds, for a worker with this heartbeat interval."""
    return round(beat_s * BEATS_OF_SILENCE * 1000)
