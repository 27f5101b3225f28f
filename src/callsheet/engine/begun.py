"""Which jobs have begun, of those that a worker has claimed ahead of its free slots.

A job that is claimed ahead is `running` in the store and only waits inside the worker, and short jobs end before it
would be worth a write to say that they have begun. So the owner of such a claim is `NAME~ahead-NONCE`, and one document
of that name lists the jobs that have begun and did not end within a moment. When the worker dies, a job that is not
listed has not begun, or was short, and its loss costs nothing. A job that was lost like that once is listed before it
begins, from then on: if it kills its worker, that counts.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from callsheet.kernel.commands import LOST_EARLY
from callsheet.kernel.errors import DocumentConflict
from callsheet.store.protocol import Document

if TYPE_CHECKING:
    from callsheet.kernel.job import Job
    from callsheet.store.protocol import Store

KIND = "begun"
AHEAD = "~ahead-"
KEPT_MS = 30 * 86_400_000  # what a killed worker left behind goes after this time


class BegunJobs:
    """The list of one run of a worker, which alone writes it. `owner` owns its claims ahead."""

    def __init__(self, store: Store, worker_id: str) -> None:
        self.owner = f"{worker_id}{AHEAD}{secrets.token_hex(8)}"
        self._store = store
        self._version = 0

    async def write(self, job_ids: Collection[str]) -> None:
        """Make this the list; raises StoreError. A write whose answer was lost is made again."""
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
        """Forget the list: the worker holds no claim any more."""
        if self._version:
            await self._store.delete_document(KIND, self.owner)


def is_ahead(job: Job) -> bool:
    """Whether a running job was claimed ahead."""
    return AHEAD in (job.worker_id or "")


def needs_listing(job: Job) -> bool:
    """Whether a job may begin only after it is listed: it may have killed the worker that it was lost with."""
    return job.error is not None and LOST_EARLY in job.error


async def lost_early(store: Store, jobs: Sequence[Job]) -> frozenset[str]:
    """The ids of those jobs whose worker had claimed them ahead, and did not list them as begun."""
    ahead = [job for job in jobs if is_ahead(job)]
    lists = {owner: await _listed(store, owner) for owner in {job.worker_id or "" for job in ahead}}
    return frozenset(job.job_id for job in ahead if job.job_id not in lists[job.worker_id or ""])


async def _listed(store: Store, owner: str) -> frozenset[str]:
    documents = await store.documents(KIND, owner)
    return frozenset(json.loads(documents[0].body)["jobs"]) if documents else frozenset()


async def _sweep(store: Store, now: int) -> None:
    """Remove the lists of workers that were killed long ago."""
    for document in await store.documents(KIND):
        if json.loads(document.body)["at"] < now - KEPT_MS:
            await store.delete_document(KIND, document.id)
