"""Converts errors of a stage to outcomes of its attempt. The contract's error classes decide about retries."""

from __future__ import annotations

import logging
import re

from callsheet.kernel.errors import CallsheetError, InvalidInput, Outage, StoreError
from callsheet.media.errors import FfmpegMissing, MediaError
from callsheet.objects import ObjectNotFound, ObjectsError, ObjectTooLarge, UnknownObjects
from callsheet.worker.outages import outage_of, words_of
from callsheet.worker.signals import Fatal, Retry

log = logging.getLogger("callsheet.video")
NOT_FOUND = "s3_object_not_found"
ORIGINAL = re.compile(r"videos/original/[^/\s]+/[^/\s:]+").search
AGAIN = (StoreError, FfmpegMissing, UnknownObjects)  # another worker, or a later attempt, may succeed


def outcome_of(error: Exception, attempt: int) -> Fatal | Retry | Outage:
    """Return the outcome of a stage's error: wait for an outage, retry, or fail for good."""
    if (outage := outage_of(error)) is not None:
        return outage
    match error:
        case ObjectNotFound():
            return Fatal(_missing(str(error)), code=NOT_FOUND)
        case ObjectTooLarge():
            return Fatal(str(error), code="source_too_large")
        case ObjectsError() if not isinstance(error, AGAIN):
            return Retry(str(error), code=error.code) if error.retryable else Fatal(str(error), code=error.code)
        case MediaError() if not isinstance(error, AGAIN):
            again = error.retry_after(attempt)
            return Retry(str(error), code=error.code) if again else Fatal(str(error), code=error.code)
        case CallsheetError() if isinstance(error, AGAIN):
            return Retry(words_of(error), code=error.code)
        case InvalidInput():
            return Fatal(str(error), code="invalid_payload")
        case CallsheetError():
            return Fatal(words_of(error), code=error.code)
    log.error("a stage broke", exc_info=error)
    return Retry(f"something broke on our side: {type(error).__name__}", code="internal")


def _missing(message: str) -> str:
    """Return the contract's sentence for a missing original; for other objects, a sentence with the object's key."""
    match = ORIGINAL(message)
    return f"Original video not found at {match[0]}" if match else f"there is no such object: {message}"


def type_of(code: str) -> str:
    """Return a code in the contract's form of error types: `s3_object_not_found` becomes S3ObjectNotFound."""
    return "".join(part[:1].upper() + part[1:] for part in code.split("_"))
