"""Removal of workspaces left by killed workers, after their attempts are over.

The owner decides. A folder that a living process holds is left alone, whatever a store says of the job. A folder of a
dead process is removed as soon as the store no longer holds its claim. Folders without a lock file come from older
versions: the sweep removes such folders after their claim ends in the store, or after a day without changes.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from callsheet.kernel.errors import StoreError
from callsheet.kernel.job import Job, Status

from .workspace import Owner, Workspace

log = logging.getLogger("callsheet.worker")
SWEEP_S = 2.0
ORPHAN_S = 24 * 3600.0
ReadsJobs = Callable[[Sequence[str]], Awaitable[Sequence[Job | None]]]


async def sweep_until_ended(root: Path | None, jobs: ReadsJobs | None) -> None:
    """Sweep repeatedly, at jittered intervals. `jobs` reads jobs by id; None if the worker has no store."""
    while True:
        try:
            await sweep(root, jobs)
        except (StoreError, OSError) as error:
            log.debug("the workspaces are swept later: %s", error)
        await asyncio.sleep(SWEEP_S * random.uniform(0.75, 1.25))  # noqa: S311 - jitter


async def sweep(root: Path | None, jobs: ReadsJobs | None, *, now_s: float | None = None) -> int:
    """Remove the folders of finished attempts and return their number. Raises StoreError."""
    owned = await asyncio.to_thread(_free_folders, root)
    ids = [folder.claim.job_id for folder, _ in owned]
    known = await jobs(ids) if ids and jobs is not None else [None] * len(ids)
    at = time.time() if now_s is None else now_s
    over = [folder for (folder, owner), job in zip(owned, known, strict=True) if _is_over(folder, owner, job, at)]
    removed = [await asyncio.to_thread(folder.take) for folder in over]
    return sum(removed)


def _free_folders(root: Path | None) -> list[tuple[Workspace, Owner]]:
    """Return the folders without a living owner process."""
    owned = [(folder, folder.owner()) for folder in Workspace.all_in(root)]
    return [(folder, owner) for folder, owner in owned if owner is not Owner.ALIVE]


def _is_over(folder: Workspace, owner: Owner, job: Job | None, now_s: float) -> bool:
    """Return whether a folder without a living owner belongs to a finished attempt."""
    if job is not None:
        return job.status is not Status.RUNNING or job.claim != folder.claim
    return owner is Owner.GONE or now_s - folder.changed_at() >= ORPHAN_S
