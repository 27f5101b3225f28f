"""Removal of the workspaces whose attempts are over: their worker was killed, so it could not remove them itself.

The owner decides. A folder that a living process holds is left alone, whatever any store says of its job. One whose
process is gone goes, unless its claim still holds in the store: then it goes with the claim. One without a lock is of
an older version: it goes when its job is known and has moved on, or when nobody has touched it for a day.
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
    """Sweep again and again, at jittered times. `jobs` reads jobs by id; None where no store is in reach."""
    while True:
        try:
            await sweep(root, jobs)
        except (StoreError, OSError) as error:
            log.debug("the workspaces are swept later: %s", error)
        await asyncio.sleep(SWEEP_S * random.uniform(0.75, 1.25))  # noqa: S311 - jitter


async def sweep(root: Path | None, jobs: ReadsJobs | None, *, now_s: float | None = None) -> int:
    """Remove the folders of attempts that are over; returns how many. Raises StoreError."""
    owned = await asyncio.to_thread(_free_folders, root)
    ids = [folder.claim.job_id for folder, _ in owned]
    known = await jobs(ids) if ids and jobs is not None else [None] * len(ids)
    at = time.time() if now_s is None else now_s
    over = [folder for (folder, owner), job in zip(owned, known, strict=True) if _is_over(folder, owner, job, at)]
    removed = [await asyncio.to_thread(folder.take) for folder in over]
    return sum(removed)


def _free_folders(root: Path | None) -> list[tuple[Workspace, Owner]]:
    """Return the folders that no living process holds."""
    owned = [(folder, folder.owner()) for folder in Workspace.all_in(root)]
    return [(folder, owner) for folder, owner in owned if owner is not Owner.ALIVE]


def _is_over(folder: Workspace, owner: Owner, job: Job | None, now_s: float) -> bool:
    """Whether nobody can be at a folder that no living process is known to hold."""
    if job is not None:
        return job.status is not Status.RUNNING or job.claim != folder.claim
    return owner is Owner.GONE or now_s - folder.changed_at() >= ORPHAN_S
