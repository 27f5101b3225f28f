"""Outages in a task's exceptions (errors caused neither by the job nor by the task), and error texts for clients."""

from __future__ import annotations

import errno
import logging
import os
from typing import TypeGuard

from callsheet.kernel.errors import CallsheetError, DiskFull, Outage
from callsheet.kernel.retry import JobError

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


log = logging.getLogger("callsheet.worker")


def words_of(error: CallsheetError) -> str:
    """Return an error's text for clients; log the full text for operators."""
    if (words := error.for_clients) != str(error):
        log.warning("%s: %s", error.code, error)
    return words


def refusal_of(error: Exception) -> JobError:
    """Return the job error for a settlement that the store refused, without a driver's text."""
    if isinstance(error, CallsheetError):
        return JobError(error.code, error.for_clients, retryable=False)
    return JobError(type(error).__name__, "the store does not take what this attempt leaves behind", retryable=False)
