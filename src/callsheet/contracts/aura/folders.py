"""The folders of live jobs, `temp/{jobId}` and `proxy/{jobId}` under one root, and their cleanup.

An attempt locks the folders that it works in. The system releases the lock when the process ends, even after a crash:
a locked folder is in use, whatever its age, and neither sweeps nor older attempts of the job remove it. Removal uses
file descriptors and follows no links, so nothing outside the root can be deleted.

Cleanup never fails a job: a folder that cannot be removed is logged as a warning, and the next sweep tries again.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import random
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from callsheet.http.state import PerServer, ServerState
from callsheet.kernel.errors import CallsheetError, InvalidInput, JobNotFound, StoreError
from callsheet.kernel.job import Claim
from callsheet.kernel.new_jobs import IS_UUID

if TYPE_CHECKING:
    from callsheet.engine import Engine

log = logging.getLogger("callsheet.cleanup")
KINDS = ("temp", "proxy")
VARIABLE = "CALLSHEET_MEDIA_ROOT"
ORPHAN_S = {"temp": 24 * 3600.0, "proxy": 48 * 3600.0}


class JobFolder(NamedTuple):
    """A job folder on the disk."""

    kind: str
    job_id: str
    age_s: float


class Hold:
    """An attempt's locks on the folders of its job. Thread-safe."""

    def __init__(self, folders: Folders, claim: Claim) -> None:
        self._folders, self._claim = folders, claim
        self._locks, self._turn, self._is_over = contextlib.ExitStack(), threading.Lock(), False

    def make(self) -> tuple[Path, Path]:
        """Create and lock both folders; returns the attempt's own folder in `temp`, and the shared `proxy` folder.

        An earlier attempt that lost its claim may still write into its own folder. Raises OSError and the errors of
        `Folders.make`.
        """
        with self._turn:
            if self._is_over:
                raise StoreError(f"the attempt at job {self._claim.job_id} is over; it gets no folders")
            own = self._make("temp") / str(self._claim.claim_version)
            own.mkdir(mode=0o700, exist_ok=True)
            return own, self._make("proxy")

    def remove(self) -> None:
        """Release the locks, and remove each folder that no other attempt has locked."""
        with self._turn:
            self._is_over = True
            self._locks.close()
            for kind in KINDS:
                self._folders.remove_free(kind, self._claim.job_id)

    def _make(self, kind: str) -> Path:
        """Create and lock a folder. If a sweep removes the folder before the lock, create it again."""
        while True:
            path = self._folders.make(kind, self._claim.job_id)
            with contextlib.suppress(FileNotFoundError):
                folder = _open(self._locks, path, None)
                _lock(folder, fcntl.LOCK_SH)
                if os.path.samestat(os.fstat(folder), path.lstat()):
                    return path


def default_root() -> Path:
    """Return the root from the environment, else a folder of this user in the system's temporary directory."""
    root = os.environ.get(VARIABLE, "")
    return Path(root) if root else Path(tempfile.gettempdir(), f"callsheet-media-{os.getuid()}")


class Folders:
    """The job folders under one root."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or default_root()

    def make(self, kind: str, job_id: str) -> Path:
        """Create a job's folder, readable by this user only. Raises InvalidInput, and StoreError for an unsafe root."""
        path = self._path(kind, job_id)
        if not shutil.rmtree.avoids_symlink_attacks:
            raise StoreError("this system cannot remove folders without following links; live jobs have none")
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (self.root, path.parent):
            folder.mkdir(mode=0o700, exist_ok=True)
            if not _is_ours(folder.lstat()):
                raise StoreError(f"{folder} is a link, or others may write there; set {VARIABLE} to another folder")
        path.mkdir(mode=0o700, exist_ok=True)
        if not _is_ours(path.lstat()):
            raise StoreError(f"{path} is a link or not ours; remove it")
        os.utime(path)  # a folder of an earlier attempt is in use again
        return path

    def remove(self, job_id: str) -> bool:
        """Delete both folders of an ended job; if a folder cannot be deleted, logs a warning and returns False."""
        results = [self._remove(kind, job_id) for kind in KINDS]
        return all(results)

    def remove_free(self, kind: str, job_id: str) -> bool:
        """Delete one folder of a job unless an attempt has locked it; returns True if the folder is gone."""
        return self._remove(kind, job_id, held_too=False)

    def _remove(self, kind: str, job_id: str, *, held_too: bool = True) -> bool:
        path = self._path(kind, job_id)
        with contextlib.ExitStack() as stack:
            try:
                root = _open(stack, self.root, None)
                parent = _open(stack, Path(kind), root)
                status = os.stat(path.name, dir_fd=parent, follow_symlinks=False)
                if stat.S_ISLNK(status.st_mode):
                    os.unlink(path.name, dir_fd=parent)
                elif status.st_uid != os.getuid():
                    log.warning("%s is not ours; it is left alone", path)
                    return False
                elif not held_too and not _lock(_open(stack, Path(path.name), parent), fcntl.LOCK_EX | fcntl.LOCK_NB):
                    return False
                else:
                    shutil.rmtree(path.name, dir_fd=parent)
            except FileNotFoundError:
                return True
            except OSError as error:
                log.warning("%s could not be removed: %s", path, error)
                return False
        return True

    def remove_old(self, now_s: float) -> int:
        """Remove unlocked folders past their ORPHAN_S age; returns the number of removed folders. Workers call this."""
        old = [folder for folder in self.list_all(now_s) if folder.age_s >= ORPHAN_S[folder.kind]]
        return sum(self.remove_free(folder.kind, folder.job_id) for folder in old)

    def list_all(self, now_s: float) -> Iterator[JobFolder]:
        """Yield all folders named by a job id, with the seconds since their last change."""
        for kind in KINDS:
            try:
                entries = list(os.scandir(self.root / kind))
            except OSError:
                continue
            for entry in entries:
                with contextlib.suppress(OSError):
                    if IS_UUID(entry.name):
                        yield JobFolder(kind, entry.name, now_s - _changed_at(entry))

    def exists(self, job_id: str) -> bool:
        """Return True if a job still has a folder."""
        return any(self._path(kind, job_id).is_dir() for kind in KINDS)

    def _path(self, kind: str, job_id: str) -> Path:
        if kind not in KINDS or not IS_UUID(job_id):
            raise InvalidInput(f"{job_id[:100]!r} is no job id, so no folder is named by it")
        return self.root / kind / job_id


def _changed_at(entry: os.DirEntry[str]) -> float:
    """Return when any file below a folder last changed: writing a file does not update its folder's time."""
    latest = entry.stat(follow_symlinks=False).st_mtime
    if not entry.is_dir(follow_symlinks=False):
        return latest
    for _, _, files, descriptor in os.fwalk(entry.path, follow_symlinks=False):
        for name in (".", *files):
            with contextlib.suppress(OSError):
                latest = max(latest, os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mtime)
    return latest


def _lock(folder: int, how: int) -> bool:
    """Lock an open folder until it is closed; returns False if another process holds the lock."""
    try:
        fcntl.flock(folder, how)
    except BlockingIOError:
        return False
    except OSError as error:  # some file systems have no locks
        log.debug("a folder cannot be locked, so its age alone decides: %s", error)
    return True


def _is_ours(status: os.stat_result) -> bool:
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022


def _open(stack: contextlib.ExitStack, path: Path, parent: int | None) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    stack.callback(os.close, descriptor)
    return descriptor


FIRST_SWEEP_S, SWEEP_S = 60.0, 24 * 3600.0
PATIENCE_S = 600.0  # how long to wait for the job's end; after that the sweep removes the folders


class Cleanup:
    """Cleans up the folders of one machine. A worker on another machine has a cleanup of its own."""

    def __init__(self, engine: Engine, folders: Folders | None = None) -> None:
        self._engine = engine
        self.folders = folders or Folders()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start the sweeps: the first within a minute, then daily."""
        self._begin(self._sweep_for_ever())

    def stop(self) -> None:
        """Cancel all running cleanups. Safe to call twice."""
        for task in self._tasks:
            task.cancel()

    def schedule(self, job_id: str) -> None:
        """Remove a job's folders as soon as the job has ended."""
        self._begin(self._after_its_end(job_id))

    async def sweep(self, now_s: float | None = None) -> int:
        """Remove old, unlocked folders of ended or unknown jobs; returns the number of removed folders."""
        count = 0
        for folder in await asyncio.to_thread(
            lambda: list(self.folders.list_all(time.time() if now_s is None else now_s))
        ):
            if folder.age_s >= ORPHAN_S[folder.kind] and await self._is_over(folder.job_id):
                count += await asyncio.to_thread(self.folders.remove_free, folder.kind, folder.job_id)
        return count

    async def _after_its_end(self, job_id: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                async for _ in self._engine.watch(job_id):
                    pass
            await asyncio.to_thread(self.folders.remove, job_id)
        except TimeoutError:
            log.warning("the folders of job %s are left to the sweep: it has not ended", job_id)
        except CallsheetError as error:
            log.warning("the folders of job %s are left to the sweep: %s", job_id, error)

    async def _is_over(self, job_id: str) -> bool:
        try:
            return (await self._engine.get(job_id)).status.terminal
        except JobNotFound:
            return True

    async def _sweep_for_ever(self) -> None:
        pause_s = FIRST_SWEEP_S  # soon after the start: a server restarted daily must sweep, too
        while True:
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
            pause_s = SWEEP_S
            try:
                await self.sweep()
            except (CallsheetError, OSError) as error:
                log.warning("a sweep of left folders failed: %s", error)

    def _begin(self, work: object) -> None:
        task = asyncio.ensure_future(work)  # type: ignore[call-overload]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def cleanup_of(state: ServerState) -> Cleanup:
    """Return the cleanup of this server process, started on first use and stopped with the process."""
    return CLEANUP.of(state)


def _start(state: ServerState) -> Cleanup:
    cleanup = Cleanup(state.engine)
    state.on_stop.append(cleanup.stop)
    cleanup.start()
    return cleanup


CLEANUP = PerServer(_start)
