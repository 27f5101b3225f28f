"""Error texts that are stored with a job for clients to read."""

from __future__ import annotations

import logging

from callsheet.kernel.errors import CallsheetError
from callsheet.kernel.retry import JobError

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
