"""Folders for attempts. One root, one folder per claim, named by ids only; removal never follows a link.

`shutil.rmtree` works by file descriptors where it can, so that nothing swapped in meanwhile is followed outside; where
it cannot, no workspace is made.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import stat
import tempfile
from pathlib import Path
from typing import NamedTuple, Self

from callsheet.kernel.errors import StoreError
from callsheet.kernel.intake import IS_UUID
from callsheet.kernel.job import Claim

log = logging.getLogger("callsheet.worker")
_NAME = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\.\d{1,9}").fullmatch


class Workspace(NamedTuple):
    """A private folder under its root."""

    root: Path
    name: str

    @classmethod
    def create(cls, root: Path | None, claim: Claim) -> Self:
        """Make the folder, readable by this user only; raises StoreError where that cannot be done safely."""
        if not shutil.rmtree.avoids_symlink_attacks:
            raise StoreError("this system cannot remove folders without following links; workspaces are off")
        if not IS_UUID(claim.job_id.lower()):  # a foreign gateway's may be upper-case
            raise StoreError(f"{claim.job_id!r} is no job id, so no folder is named by it")
        root = root or _default_root()
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = root.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
            raise StoreError(f"{root} is a link, or others may write there; choose another folder for workspaces")
        workspace = cls(root, f"{claim.job_id}.{claim.claim_version}")
        workspace.path.mkdir(mode=0o700)
        return workspace

    @classmethod
    def found_in(cls, root: Path | None) -> list[Self]:
        """The folders there are, of this worker, of others, and of those that were killed."""
        root = root or _default_root()
        try:
            return [cls(root, entry.name) for entry in os.scandir(root) if _NAME(entry.name)]
        except OSError:
            return []

    @property
    def claim(self) -> Claim:
        """The claim that it was made for."""
        job_id, _, version = self.name.partition(".")
        return Claim(job_id, int(version))

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.root / self.name

    def remove(self) -> None:
        """Delete it with all that is in it; what cannot be deleted is left and told of."""
        root = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(self.name, dir_fd=root)
        except OSError as error:
            log.warning("workspace %s could not be removed: %s", self.path, error)
        finally:
            os.close(root)


def _default_root() -> Path:
    return Path(tempfile.gettempdir(), f"callsheet-{os.getuid()}")
