"""Every error of the client, as one tree. An answer with a problem keeps what the server said.

CallsheetError
├── ApiError                the server answered with a problem: code, status, detail, request_id, retry_after_s
│   ├── InvalidRequest      400, 413, 415, 422 …; also an InvalidInput
│   ├── Unauthorized        401: no key, or one that is unknown, expired or revoked
│   ├── Forbidden           403: the key lacks a scope
│   ├── NotFound            404: no such path; is the URL right?
│   │   └── NoSuchJob       also a JobNotFound
│   ├── Conflict            409; also a Refused
│   │   └── KeyConflict     the idempotency key was used with another request; also an IdempotencyConflict
│   ├── TooManyRequests     429
│   └── ServerFailed        5xx
│       └── ServerBusy      502, 503, 504: trying again later is right
├── ServerUnreachable       no answer at all, for as long as the client's patience lasts
└── UnexpectedAnswer        this does not look like a Callsheet server
    └── EventTooLarge
"""

from __future__ import annotations

import email.utils
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, NamedTuple

import httpx2

from callsheet.kernel.errors import CallsheetError, IdempotencyConflict, InvalidInput, JobNotFound, Refused

SHOWN = 200  # characters of an answer that is no problem document
AGAIN = frozenset({429, 502, 503, 504})


class Told(NamedTuple):
    """What a problem answer says."""

    status: int
    code: str
    detail: str
    request_id: str = ""
    retry_after_s: float | None = None
    errors: Sequence[Mapping[str, Any]] = ()


class ApiError(CallsheetError):
    """The server refused. `code` is stable and safe to match on."""

    code = "api_error"

    def __init__(self, told: Told) -> None:
        super().__init__(f"{told.detail} ({told.code})")
        self.code = told.code
        self.status = told.status
        self.detail = told.detail
        self.request_id = told.request_id
        self.retry_after_s = told.retry_after_s
        self.errors = told.errors

    @property
    def again(self) -> bool:
        """True when the same request may succeed later, unchanged."""
        return self.status in AGAIN or (self.status == HTTPStatus.CONFLICT and self.retry_after_s is not None)


class InvalidRequest(ApiError, InvalidInput):
    """The request is wrong in itself; sending it again changes nothing. `errors` says where."""


class Unauthorized(ApiError):
    """The API key is missing, unknown, expired or revoked."""


class Forbidden(ApiError):
    """The API key may not do this."""


class NotFound(ApiError):
    """The server knows no such path."""


class NoSuchJob(NotFound, JobNotFound):
    """No such job for this key."""


class Conflict(ApiError, Refused):
    """Right in itself, but not in this state."""


class KeyConflict(Conflict, IdempotencyConflict):
    """The idempotency key was used before with another request."""


class TooManyRequests(ApiError):
    """Slow down: `retry_after_s` says for how long."""


class ServerFailed(ApiError):
    """The server could not do it."""


class ServerBusy(ServerFailed):
    """The server, or one before it, cannot serve now."""


class ServerUnreachable(CallsheetError):
    """No answer came within the client's patience."""

    code = "server_unreachable"


class UnexpectedAnswer(CallsheetError):
    """An answer that is none of the API's."""

    code = "unexpected_answer"


class EventTooLarge(UnexpectedAnswer):
    """One event of a stream is over the limit."""

    code = "event_too_large"


_BY_CODE: dict[str, type[ApiError]] = {"job_not_found": NoSuchJob, "idempotency_conflict": KeyConflict}
_BY_STATUS: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    429: TooManyRequests,
    502: ServerBusy,
    503: ServerBusy,
    504: ServerBusy,
}


def problem_of(answer: httpx2.Response) -> CallsheetError:
    """The error that an answer is; its body must have been read."""
    if not answer.is_error:
        return UnexpectedAnswer(f"{answer.url.host} answered with status {answer.status_code}; is the URL right?")
    told = _told(answer)
    general = InvalidRequest if answer.is_client_error else ServerFailed
    return (_BY_CODE.get(told.code) or _BY_STATUS.get(told.status, general))(told)


def _told(answer: httpx2.Response) -> Told:
    try:
        body = answer.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):  # of a proxy, say
        body = {"detail": " ".join(answer.text.split())[:SHOWN] or answer.reason_phrase}
    errors = body.get("errors")
    return Told(
        answer.status_code,
        str(body.get("code") or f"http_{answer.status_code}"),
        str(body.get("detail") or body.get("title") or answer.reason_phrase),
        str(body.get("request_id") or ""),
        _retry_after(answer.headers.get("Retry-After", "")),
        [error for error in errors if isinstance(error, dict)] if isinstance(errors, list) else (),
    )


def _retry_after(text: str) -> float | None:
    """Seconds from now, written as a number or as a moment."""
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        moment = email.utils.parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    return max(0.0, (moment.astimezone(UTC) - datetime.now(UTC)).total_seconds())
