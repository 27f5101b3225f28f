"""`DiskRoom` tells whether the disk of the workspaces is full. A worker on a full disk claims no jobs."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

log = logging.getLogger("callsheet.worker")
LEAST_FREE_BYTES = 100 * 1024 * 1024
LEAST_FREE_SHARE = 0.02
LOOK_S = 1.0
MEBIBYTE = 1024 * 1024


class Usage(NamedTuple):
    """The total and free size of a disk, in bytes."""

    total: int
    free: int


def usage_of(folder: Path) -> Usage | None:
    """Return the usage of a folder's disk; a missing folder counts as its nearest parent. None after an error."""
    for place in (folder, *folder.parents):
        try:
            usage = shutil.disk_usage(place)
        except FileNotFoundError:
            continue
        except OSError:
            return None
        return Usage(usage.total, usage.free)
    return None


class DiskRoom:
    """Checks the free space of one folder's disk, once per second at most.

    The disk is full when less than 100 MiB is free, or less than 2 % where that is less.
    """

    def __init__(
        self, folder: Path, read: Callable[[Path], Usage | None] = usage_of, *, look_every_s: float = LOOK_S
    ) -> None:
        self.folder = folder
        self._read = read
        self._look_every_s = look_every_s
        self._is_full = False
        self._next_look_at = float("-inf")

    def is_full(self) -> bool:
        """Return whether there is too little room to begin another job; logs when that changes."""
        now = time.monotonic()
        if now >= self._next_look_at:
            self._next_look_at = now + self._look_every_s
            self._look()
        return self._is_full

    def _look(self) -> None:
        usage = self._read(self.folder)
        is_full = usage is not None and usage.free < min(LEAST_FREE_BYTES, usage.total * LEAST_FREE_SHARE)
        if is_full and not self._is_full and usage is not None:
            free = usage.free // MEBIBYTE
            log.error("the disk of %s is full (%d MiB free): no job is claimed until there is room", self.folder, free)
        elif self._is_full and not is_full:
            log.info("the disk of %s has room again: jobs are claimed", self.folder)
        self._is_full = is_full
