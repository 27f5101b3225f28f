"""The client's error classes, as one tree. An ApiError carries the fields of the server's problem document.

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

import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

import httpx2

from callsheet.kernel.errors import CallsheetError, IdempotencyConflict, InvalidInput, JobNotFound, Refused
from callsheet.net.retry_after import retry_after_s

MOST_QUOTED = 200  # characters quoted from a response that is no problem document
AGAIN = frozenset({429, 502, 503, 504})


class Problem(NamedTuple):
    """The fields of an error response."""

    status: int
    code: str
    detail: str
    request_id: str = ""
    retry_after_s: float | None = None
    errors: Sequence[Mapping[str, Any]] = ()


class ApiError(CallsheetError):
    """An error response of the server. `code` is stable and safe to match on."""

    code = "api_error"

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"{problem.detail} ({problem.code})")
        self.code = problem.code
        self.status = problem.status
        self.detail = problem.detail
        self.request_id = problem.request_id
        self.retry_after_s = problem.retry_after_s
        self.errors = problem.errors

    @property
    def again(self) -> bool:
        """True if the same request, unchanged, may succeed later."""
        return self.status in AGAIN or (self.status == HTTPStatus.CONFLICT and self.retry_after_s is not None)


class InvalidRequest(ApiError, InvalidInput):
    """The request is invalid, so repeating it fails again. `errors` names the invalid fields."""


class Unauthorized(ApiError):
    """The API key is missing, unknown, expired or revoked."""


class Forbidden(ApiError):
    """The API key lacks the scope for this request."""


class NotFound(ApiError):
    """The server has no resource at this URL path."""


class NoSuchJob(NotFound, JobNotFound):
    """The job does not exist, or this API key has no access to it."""


class Conflict(ApiError, Refused):
    """The request is valid but not allowed in the current state of the job or resource."""


class KeyConflict(Conflict, IdempotencyConflict):
    """The idempotency key was used before with another request."""


class TooManyRequests(ApiError):
    """The rate limit is exceeded: wait `retry_after_s` seconds before the next request."""


class ServerFailed(ApiError):
    """The server failed to handle the request (status 5xx)."""


class ServerBusy(ServerFailed):
    """The server, or a proxy before it, is temporarily unavailable; retry later."""


class ServerUnreachable(CallsheetError):
    """No response arrived within the limits of the client's Patience."""

    code = "server_unreachable"


class UnexpectedAnswer(CallsheetError):
    """The response has a form that the Callsheet API never sends."""

    code = "unexpected_answer"


class EventTooLarge(UnexpectedAnswer):
    """An event of a stream exceeds the limit of 1 MiB."""

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
    """Return the error for a response whose body has been read."""
    if not answer.is_error:
        return UnexpectedAnswer(f"{answer.url.host} answered with status {answer.status_code}; is the URL right?")
    problem = _problem(answer)
    general = InvalidRequest if answer.is_client_error else ServerFailed
    return (_BY_CODE.get(problem.code) or _BY_STATUS.get(problem.status, general))(problem)


def _problem(answer: httpx2.Response) -> Problem:
    try:
        body = answer.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):  # from a proxy, for example
        body = {"detail": " ".join(answer.text.split())[:MOST_QUOTED] or answer.reason_phrase}
    errors = body.get("errors")
    return Problem(
        answer.status_code,
        str(body.get("code") or f"http_{answer.status_code}"),
        str(body.get("detail") or body.get("title") or answer.reason_phrase),
        str(body.get("request_id") or ""),
        retry_after_s(answer.headers.get("Retry-After", ""), time.time()),
        [error for error in errors if isinstance(error, dict)] if isinstance(errors, list) else (),
    )
