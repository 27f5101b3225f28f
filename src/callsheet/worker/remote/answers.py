"""What answers mean. The set is closed: each either is an answer, or may be asked again, or is the end of it.

401, 403, 404, 409, 410, 422, 426 and every other 4xx: the same request would be refused again (`ServerRefused`). 408,
425, 429, 5xx, a redirect that is not for good, no answer, and a body that cannot be read (a proxy's page with status
200): ask again (`ServerAway`), not before `Retry-After`.

Of refusals, 401 and 403 are about who asks, 426 about its program, 301 and 308 about the address: these are the end of
a worker. All others are about what was asked, perhaps about one job: the worker rests and goes on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from callsheet.kernel.errors import CallsheetError, InvalidInput, StoreUnavailable

OK, REDIRECT, CLIENT_ERROR, SERVER_ERROR = 200, 300, 400, 500
AGAIN = frozenset({408, 425, 429})
MOVED = frozenset({301, 308})
UNAUTHORIZED, FORBIDDEN, UPGRADE_REQUIRED = 401, 403, 426
ABOUT_THE_WORKER = frozenset({UNAUTHORIZED, FORBIDDEN, UPGRADE_REQUIRED}) | MOVED
LONGEST_RETRY_AFTER_S = 60.0
SHOWN = 120


class ServerAway(StoreUnavailable):
    """The server gave no answer that could be used; asking again is right, after `retry_after_s` if it said so."""

    code = "server_away"
    waits_for = "the server"

    def __init__(self, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ServerRefused(CallsheetError):
    """The server's answer is final. `code` is its own where it has one.

    `may_enrol`: who asked has lost its right to do so, and nobody has taken it away on purpose.
    """

    def __init__(self, status: int, code: str, detail: str, *, may_enrol: bool = False) -> None:
        super().__init__(f"the server answered {status} ({code}): {detail}")
        self.status = status
        self.code = code
        self.detail = detail
        self.may_enrol = may_enrol

    @property
    def ends_worker(self) -> bool:
        """Whether no request of this worker would be taken; else only this one was refused."""
        return self.status in ABOUT_THE_WORKER


class WorkerRefused(InvalidInput):
    """The server does not want this worker: starting it again would change nothing."""

    code = "worker_refused"


class MoveRefused(CallsheetError):
    """One move of one job was refused for what it is, not for its claim."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


def read(status: int, headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """The answer's object; raises ServerAway or ServerRefused."""
    if OK <= status < REDIRECT:
        return _object(body)
    if status in AGAIN or status >= SERVER_ERROR or (REDIRECT <= status < CLIENT_ERROR and status not in MOVED):
        raise ServerAway(f"the server answered {status}", retry_after(headers.get("retry-after", "")))
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


def retry_after(text: str) -> float:
    """Seconds to wait; 0 when it is not said in seconds. A date would be judged by this machine's clock: not used."""
    return min(LONGEST_RETRY_AFTER_S, float(text)) if text.isascii() and text.strip().isdecimal() else 0.0
