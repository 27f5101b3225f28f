"""Folders for attempts. One root, one folder per claim, named by ids only; removal never follows a link.

Beside each folder lies a lock file, which the process that made the folder holds until it has removed both. The system
frees the lock when that process ends, however it ends: so whoever gets the lock knows that the owner is gone.

`shutil.rmtree` works by file descriptors where it can, so that nothing swapped in meanwhile is followed outside; where
it cannot, no workspace is made.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Self

from callsheet.kernel.errors import StoreError
from callsheet.kernel.intake import IS_UUID
from callsheet.kernel.job import Claim

log = logging.getLogger("callsheet.worker")
LOCK = ".lock"
LOOKS, LOOK_S = 100, 0.01
_NAME = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\.\d{1,9}").fullmatch


class Owner(Enum):
    """Who holds a folder: a living process, one that is gone, or one of a version that made no lock."""

    ALIVE = "alive"
    GONE = "gone"
    UNKNOWN = "unknown"


class Workspace:
    """A private folder under its root. Whoever made it, or took it over, holds its lock."""

    def __init__(self, root: Path, name: str) -> None:
        self.root, self.name = root, name
        self._lock: int | None = None

    @classmethod
    def create(cls, root: Path | None, claim: Claim) -> Self:
        """Make the folder, readable by this user only; raises StoreError where that cannot be done safely.

        What earlier attempts of the job have left goes: theirs, when their processes are gone.
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
        """Return the folders there are, and the locks without one: of this worker, of others, of those killed."""
        root = root or default_root()
        try:
            names = {entry.name.removesuffix(LOCK) for entry in os.scandir(root)}
        except OSError:
            return []
        return [cls(root, name) for name in sorted(names) if _NAME(name)]

    @property
    def claim(self) -> Claim:
        """The claim that it was made for."""
        job_id, _, version = self.name.partition(".")
        return Claim(job_id, int(version))

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.root / self.name

    def owner(self) -> Owner:
        """Say who holds the folder, by asking for its lock."""
        try:
            with _opened(self.root, self.name + LOCK, os.O_RDWR) as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return Owner.UNKNOWN
        except OSError:  # held, or not to be asked for
            return Owner.ALIVE
        return Owner.GONE

    def changed_at(self) -> float:
        """Say when the folder itself was changed last, in seconds since the epoch."""
        try:
            return self.path.lstat().st_mtime
        except OSError:
            return 0.0

    def take(self) -> bool:
        """Remove it unless a living process holds it; returns whether it was taken."""
        try:
            self._hold()
        except OSError:
            return False
        self.remove()
        return True

    def remove(self) -> None:
        """Delete it with all that is in it, then its lock; what cannot be deleted is left, free, and told of."""
        try:
            with _opened(self.root, ".", os.O_RDONLY | os.O_DIRECTORY) as root:
                with contextlib.suppress(FileNotFoundError):
                    shutil.rmtree(self.name, dir_fd=root)
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.name + LOCK, dir_fd=root)
        except OSError as error:
            log.warning("workspace %s could not be removed: %s", self.path, error)
        finally:
            self._let_go()

    def _remove_earlier(self) -> None:
        """Remove what earlier attempts of the same job have left, when their processes are gone."""
        mine = self.claim
        for other in type(self).all_in(self.root):
            is_earlier = other.claim.job_id == mine.job_id and other.claim.claim_version < mine.claim_version
            if is_earlier and other.owner() is Owner.GONE:
                other.take()

    def _hold_soon(self) -> None:
        """Get the lock of a new folder; one who asked who holds it may have it for a moment. Raises OSError."""
        for _ in range(LOOKS):
            with contextlib.suppress(BlockingIOError):
                return self._hold()
            time.sleep(LOOK_S)
        return self._hold()

    def _hold(self) -> None:
        """Get the lock; raises OSError when another one has it. A lock file that was removed meanwhile is made anew."""
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
def _opened(root: Path, name: str, flags: int) -> Iterator[int]:
    """Yield a descriptor of something in the root, following no link."""
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
    """Whether a path still leads to what was opened."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def default_root() -> Path:
    """Return the folder for workspaces of workers that were given none."""
    return Path(tempfile.gettempdir(), f"callsheet-{os.getuid()}")
