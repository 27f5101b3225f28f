"""Translates errors of S3 and its drivers to ObjectsErrors by error code; messages contain no text of the storage."""

from __future__ import annotations

import re

import httpx2

from .errors import (
    ClockSkewed,
    CredentialsExpired,
    ObjectChanged,
    ObjectExists,
    ObjectNotFound,
    ObjectsError,
    ObjectsFailing,
    ObjectsForbidden,
    ObjectsUnavailable,
    ObjectTooLarge,
    UploadIncomplete,
    UploadNotFound,
)

EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "InvalidToken"})
SKEWED = "RequestTimeTooSkewed"
SLOW_DOWN = "SlowDown"
TIMED_OUT = "RequestTimeout"  # a 400: no byte came for a while
MISSING_BUCKET = "NoSuchBucket"
FORBIDDEN = frozenset({400, 401, 403})
_CODE = re.compile(r"<Code>(\w{1,64})</Code>")
_SAYS_EXPIRED = re.compile(r"<Message>[^<]{0,200}expired", re.IGNORECASE)
_STATUS = re.compile(r"status code: (\d{3})")
OF_CODE: dict[str, type[ObjectsError]] = {
    "NoSuchKey": ObjectNotFound,
    "NoSuchUpload": UploadNotFound,
    "InvalidPart": UploadIncomplete,
    "InvalidPartOrder": UploadIncomplete,
    "EntityTooSmall": UploadIncomplete,
    "EntityTooLarge": ObjectTooLarge,
    "PreconditionFailed": ObjectChanged,
    "ConditionalRequestConflict": ObjectChanged,
}


def of_answer(status: int, body: str, doing: str) -> ObjectsError:
    """Return the ObjectsError for an error response. `doing` names the method and the key."""
    match = _CODE.search(body)
    code = match[1] if match else ""
    if code in OF_CODE:
        return OF_CODE[code](f"{doing}: {_code_or_status(code, status)}", provider_code=code)
    if code in EXPIRED or (code == "AccessDenied" and _SAYS_EXPIRED.search(body)):
        return CredentialsExpired(f"{doing}: the credentials have expired ({code})", provider_code=code)
    if code == MISSING_BUCKET:
        return ObjectsError(f"{doing}: there is no such bucket; see the objects URL and S3_BUCKET", provider_code=code)
    if code == SKEWED:
        reason = "the storage's clock is another; set this machine's"
        return ClockSkewed(f"{doing}: {reason}", provider_code=code)
    if status == httpx2.codes.NOT_FOUND:
        return ObjectNotFound(f"{doing}: there is none", provider_code=code)
    if status == httpx2.codes.PRECONDITION_FAILED:
        return ObjectChanged(f"{doing}: it is another version", provider_code=code)
    if status in FORBIDDEN and code != TIMED_OUT:
        return ObjectsForbidden(f"{doing}: the storage refuses ({_code_or_status(code, status)})", provider_code=code)
    reason = f"{doing}: the storage cannot serve now ({_code_or_status(code, status)})"
    busy = status == httpx2.codes.TOO_MANY_REQUESTS  # whatever its code: that of HEAD has none, others have odd ones
    return ObjectsFailing(reason, provider_code=SLOW_DOWN if busy else code)


def of_driver(error: Exception, doing: str) -> ObjectsError:
    """Return the ObjectsError for an exception of obstore or httpx2."""
    if isinstance(error, ObjectsError):
        return error
    from obstore import exceptions as theirs  # noqa: PLC0415 - an extra; loaded by whoever has its errors

    text = str(error)
    if isinstance(error, theirs.AlreadyExistsError):
        return ObjectExists(f"{doing}: it is there already")
    if isinstance(error, theirs.PreconditionError | theirs.NotModifiedError):
        return ObjectChanged(f"{doing}: it is another version")
    status = _STATUS.search(text)
    if status is not None:
        return of_answer(int(status[1]), text, doing)
    if isinstance(error, FileNotFoundError):
        return ObjectNotFound(f"{doing}: there is none")
    if isinstance(error, theirs.PermissionDeniedError | theirs.UnauthenticatedError):
        return ObjectsForbidden(f"{doing}: the storage refuses")
    return ObjectsUnavailable(f"{doing}: the storage cannot be reached")


def is_range_beyond_the_end(error: Exception) -> bool:
    """Return whether the error means a range beginning behind the object's last byte."""
    return "<Code>InvalidRange</Code>" in str(error) or "status code: 416" in str(error)


def _code_or_status(code: str, status: int) -> str:
    return code or f"status {status}"
