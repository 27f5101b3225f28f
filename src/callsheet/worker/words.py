"""What is written about a job when an error ended or delayed its attempt: clients read it."""

from __future__ import annotations

import logging

from callsheet.kernel.errors import CallsheetError
from callsheet.kernel.retry import JobError

log = logging.getLogger("callsheet.worker")


def words_of(error: CallsheetError) -> str:
    """Return what clients may read of an error; the rest goes into the log, for operators."""
    if (words := error.for_clients) != str(error):
        log.warning("%s: %s", error.code, error)
    return words


def refusal_of(error: Exception) -> JobError:
    """Return what is written about a job whose end the store does not take; a driver's words are not for clients."""
    if isinstance(error, CallsheetError):
        return JobError(error.code, error.for_clients, retryable=False)
    return JobError(type(error).__name__, "the store does not take what this attempt leaves behind", retryable=False)
