"""What goes wrong in a stage, as an outcome of its attempt. The contract's classes decide whether it is tried again."""

from __future__ import annotations

import logging
import re

from callsheet.kernel.errors import CallsheetError, InvalidInput, Outage, StoreError
from callsheet.media.errors import FfmpegMissing, MediaError
from callsheet.objects import ObjectNotFound, ObjectsError, ObjectTooLarge, UnknownObjects
from callsheet.worker.outages import outage_of
from callsheet.worker.signals import Fatal, Retry
from callsheet.worker.words import words_of

log = logging.getLogger("callsheet.video")
NOT_FOUND = "s3_object_not_found"
ORIGINAL = re.compile(r"videos/original/[^/\s]+/[^/\s:]+").search
AGAIN = (StoreError, FfmpegMissing, UnknownObjects)  # another worker may do better, or the same one later


def outcome_of(error: Exception, attempt: int) -> Fatal | Retry | Outage:
    """Return what an error of a stage means: a wait for what is away, another attempt, or the end."""
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


def _missing(told: str) -> str:
    """The contract's sentence for an original; for other objects, which one it is."""
    found = ORIGINAL(told)
    return f"Original video not found at {found[0]}" if found else f"there is no such object: {told}"


def type_of(code: str) -> str:
    """A code as the contract writes error types: `s3_object_not_found` is S3ObjectNotFound."""
    return "".join(part[:1].upper() + part[1:] for part in code.split("_"))
