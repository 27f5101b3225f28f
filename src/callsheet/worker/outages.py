"""Detection of outages in a task's exceptions: errors caused neither by the job nor by the task."""

from __future__ import annotations

import errno
import os
from typing import TypeGuard

from callsheet.kernel.errors import DiskFull, Outage

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


def outage_of(error: BaseException) -> Outage | None:
    """Return the outage behind an exception; None for any other error.

    An exception group, such as `asyncio.TaskGroup` raises, counts as an outage if every member is an outage.
    """
    if isinstance(error, Outage):
        return error
    if is_disk_full(error):
        return DiskFull(f"a disk of this worker is full ({os.strerror(error.errno or 0)})")
    if isinstance(error, BaseExceptionGroup):
        outages = [outage_of(member) for member in error.exceptions]
        return outages[0] if all(outages) else None
    return None


def is_disk_full(error: BaseException) -> TypeGuard[OSError]:
    """Return whether the operating system refused a write for lack of room."""
    return isinstance(error, OSError) and error.errno in NO_ROOM
