"""Classification of a server's responses: each is a usable answer, an outage (`ServerAway`) or a `ServerRefused`.

401, 403, 404, 409, 410, 422, 426 and every other 4xx: the server would refuse the same request again
(`ServerRefused`). 408, 425, 429, 5xx, a temporary redirect, no answer, and an unreadable body (a proxy's page with
status 200): retry (`ServerAway`), not before `Retry-After`.

The refusals 401 and 403 concern the worker's identity, 426 its program, 301 and 308 the address: each ends the worker.
Other refusals concern one request, perhaps one job: the worker pauses and continues.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from callsheet.kernel.errors import CallsheetError, InvalidInput, StoreUnavailable
from callsheet.net.retry_after import retry_after_s

OK, REDIRECT, CLIENT_ERROR, SERVER_ERROR = 200, 300, 400, 500
AGAIN = frozenset({408, 425, 429})
MOVED = frozenset({301, 308})
UNAUTHORIZED, FORBIDDEN, UPGRADE_REQUIRED = 401, 403, 426
ABOUT_THE_WORKER = frozenset({UNAUTHORIZED, FORBIDDEN, UPGRADE_REQUIRED}) | MOVED
LONGEST_RETRY_AFTER_S = 60.0
SHOWN = 120


class ServerAway(StoreUnavailable):
    """The server gave no usable answer; retry, after `retry_after_s` seconds if given."""

    code = "server_away"
    waits_for = "the server"

    def __init__(self, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ServerRefused(CallsheetError):
    """The server refused a request for good. `code` comes from the response body, else from the status.

    `may_enrol`: the worker's token became invalid without a deliberate revocation, so the worker may enrol again.
    """

    def __init__(self, status: int, code: str, detail: str, *, may_enrol: bool = False) -> None:
        super().__init__(f"the server answered {status} ({code}): {detail}")
        self.status = status
        self.code = code
        self.detail = detail
        self.may_enrol = may_enrol

    @property
    def ends_worker(self) -> bool:
        """True if the server would refuse every request of this worker, False if it refused only this request."""
        return self.status in ABOUT_THE_WORKER


class WorkerRefused(InvalidInput):
    """The server refuses this worker; a restart would not help."""

    code = "worker_refused"


class MoveRefused(CallsheetError):
    """The server refused one settlement for its content, not for a lost claim."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


def read(status: int, headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """Return the JSON object of a response; raises ServerAway or ServerRefused."""
    if OK <= status < REDIRECT:
        return _object(body)
    if status in AGAIN or status >= SERVER_ERROR or (REDIRECT <= status < CLIENT_ERROR and status not in MOVED):
        raise ServerAway(f"the server answered {status}", _retry_after_s(headers.get("retry-after", "")))
    if status in MOVED:
        raise ServerRefused(
            status, "moved", f"it has moved to {headers.get('location', 'nowhere')[:SHOWN]}; use that URL"
        )
    try:
        problem = json.loads(body)
    except (ValueError, RecursionError):
        problem = None
    told = problem if isinstance(problem, dict) else {}
    code = str(told.get("code") or f"http_{status}")
    may_enrol = code == "unauthorized" or told.get("may_enrol") is True
    raise ServerRefused(status, code, str(told.get("detail") or "no reason given"), may_enrol=may_enrol)


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        shown = " ".join(body[:SHOWN].decode("utf-8", "replace").split())
        raise ServerAway(f"the server answered with {shown!r}, which is no JSON object; is a proxy in between?")
    return found


def _retry_after_s(text: str) -> float:
    """Return the seconds of a Retry-After header, 60 at most; 0 for a date, which needs this machine's clock."""
    return min(LONGEST_RETRY_AFTER_S, retry_after_s(text) or 0.0)
