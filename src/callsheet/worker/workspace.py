"""Folders for attempts. One root, one folder per claim, named by ids only; removal never follows a link.

Beside each folder lies a lock file, which the owner process locks until both are removed. The operating system frees
the lock when that process exits or is killed: whoever gets the lock knows that the owner process is gone.

Removal uses `shutil.rmtree` by file descriptors, so that a link swapped in meanwhile is never followed; on systems
without that support `create` raises StoreError.

The sweep removes workspaces left by killed workers. The owner decides: a folder that a living process holds is left
alone, whatever a store says of the job. A folder of a dead process is removed as soon as the store no longer holds its
claim. Folders without a lock file come from older versions, and are removed after their claim ends in the store, or
after a day without changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import random
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Self

from callsheet.kernel.errors import StoreError
from callsheet.kernel.job import Claim, Job, Status
from callsheet.kernel.new_jobs import IS_UUID

log = logging.getLogger("callsheet.worker")
LOCK = ".lock"
LOOKS, LOOK_S = 100, 0.01
_NAME = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\.\d{1,9}").fullmatch


class Owner(Enum):
    """The state of a folder's owner process: alive, gone, or unknown (an older version, without a lock file)."""

    ALIVE = "alive"
    GONE = "gone"
    UNKNOWN = "unknown"


class Workspace:
    """A private folder under its root. The creating process, or a process that took the folder over, holds its lock."""

    def __init__(self, root: Path, name: str) -> None:
        self.root, self.name = root, name
        self._lock: int | None = None

    @classmethod
    def create(cls, root: Path | None, claim: Claim) -> Self:
        """Make the folder, readable by this user only; raises StoreError if links or other users make that unsafe.

        Folders of the job's earlier attempts are removed if their owner processes are gone.
        """
        if not shutil.rmtree.avoids_symlink_attacks:
            raise StoreError("this system cannot remove folders without following links; workspaces are off")
        if not IS_UUID(claim.job_id.lower()):  # a foreign gateway's may be upper-case
            raise StoreError(f"{claim.job_id!r} is no job id, so no folder is named by it")
        root = root or default_root()
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = root.lstat()
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o022:
            raise StoreError(f"{root} is a link, or others may write there; choose another folder for workspaces")
        workspace = cls(root, f"{claim.job_id}.{claim.claim_version}")
        workspace._hold_soon()
        try:
            workspace.path.mkdir(mode=0o700)
        except OSError:
            workspace._let_go()
            raise
        workspace._remove_earlier()
        return workspace

    @classmethod
    def all_in(cls, root: Path | None) -> list[Self]:
        """Return all workspaces under a root, by folder or lock file, of this worker and of other or killed workers."""
        root = root or default_root()
        try:
            names = {entry.name.removesuffix(LOCK) for entry in os.scandir(root)}
        except OSError:
            return []
        return [cls(root, name) for name in sorted(names) if _NAME(name)]

    @property
    def claim(self) -> Claim:
        """The claim that the folder's name gives."""
        job_id, _, version = self.name.partition(".")
        return Claim(job_id, int(version))

    @property
    def path(self) -> Path:
        """The folder's path."""
        return self.root / self.name

    def owner(self) -> Owner:
        """Try the folder's lock and return the state of its owner process."""
        try:
            with _open(self.root, self.name + LOCK, os.O_RDWR) as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return Owner.UNKNOWN
        except OSError:  # held, or not to be asked for
            return Owner.ALIVE
        return Owner.GONE

    def changed_at(self) -> float:
        """Return the folder's modification time in seconds since the epoch; 0 if it cannot be read."""
        try:
            return self.path.lstat().st_mtime
        except OSError:
            return 0.0

    def take(self) -> bool:
        """Remove the folder unless a living process holds its lock; return whether the lock was free."""
        try:
            self._hold()
        except OSError:
            return False
        self.remove()
        return True

    def remove(self) -> None:
        """Delete the folder and its lock file, and free the lock; an error is logged, and the remaining files stay."""
        try:
            with _open(self.root, ".", os.O_RDONLY | os.O_DIRECTORY) as root:
                with contextlib.suppress(FileNotFoundError):
                    shutil.rmtree(self.name, dir_fd=root)
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.name + LOCK, dir_fd=root)
        except OSError as error:
            log.warning("workspace %s could not be removed: %s", self.path, error)
        finally:
            self._let_go()

    def _remove_earlier(self) -> None:
        """Remove folders of earlier attempts of the same job whose owner processes are gone."""
        mine = self.claim
        for other in type(self).all_in(self.root):
            is_earlier = other.claim.job_id == mine.job_id and other.claim.claim_version < mine.claim_version
            if is_earlier and other.owner() is Owner.GONE:
                other.take()

    def _hold_soon(self) -> None:
        """Lock a new folder, retrying for a second: `owner()` in another process may hold the lock. Raises OSError."""
        for _ in range(LOOKS):
            with contextlib.suppress(BlockingIOError):
                return self._hold()
            time.sleep(LOOK_S)
        return self._hold()

    def _hold(self) -> None:
        """Lock the folder; raises OSError if another process holds the lock. Recreates a removed lock file."""
        path = self.path.with_name(self.name + LOCK)
        while self._lock is None:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_file(lock, path):
                    self._lock, lock = lock, -1
            finally:
                if lock >= 0:
                    os.close(lock)

    def _let_go(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


@contextlib.contextmanager
def _open(root: Path, name: str, flags: int) -> Iterator[int]:
    """Yield a file descriptor of a name in the root, without following links."""
    around = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        descriptor = os.open(name, flags | os.O_NOFOLLOW, dir_fd=around)
    finally:
        os.close(around)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _is_file(descriptor: int, path: Path) -> bool:
    """Return whether a path still names the file of an open descriptor."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def default_root() -> Path:
    """Return the folder for workspaces if the worker's options name none."""
    return Path(tempfile.gettempdir(), f"callsheet-{os.getuid()}")


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
    owned_folders = await asyncio.to_thread(_free_folders, root)
    ids = [folder.claim.job_id for folder, _ in owned_folders]
    known_jobs = await jobs(ids) if ids and jobs is not None else [None] * len(ids)
    at = time.time() if now_s is None else now_s
    over = [
        folder
        for (folder, owner), job in zip(owned_folders, known_jobs, strict=True)
        if _is_over(folder, owner, job, at)
    ]
    has_removed = [await asyncio.to_thread(folder.take) for folder in over]
    return sum(has_removed)


def _free_folders(root: Path | None) -> list[tuple[Workspace, Owner]]:
    """Return the folders without a living owner process."""
    folders = [(folder, folder.owner()) for folder in Workspace.all_in(root)]
    return [(folder, owner) for folder, owner in folders if owner is not Owner.ALIVE]


def _is_over(folder: Workspace, owner: Owner, job: Job | None, now_s: float) -> bool:
    """Return whether a folder without a living owner belongs to a finished attempt."""
    if job is not None:
        return job.status is not Status.RUNNING or job.claim != folder.claim
    return owner is Owner.GONE or now_s - folder.changed_at() >= ORPHAN_S
