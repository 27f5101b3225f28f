"""HTTP requests of a remote worker: timeouts, the token, and the translation of httpx2's errors."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
import urllib.request
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import httpx2

from callsheet.kernel.errors import CallsheetError, InvalidInput, StoreUnavailable
from callsheet.net.backoff import pause_after
from callsheet.net.driver_errors import http_errors_as, reason_of
from callsheet.net.retry_after import retry_after_s

from .options import VERSION

if TYPE_CHECKING:
    from .credentials import Credentials

OK, REDIRECT, CLIENT_ERROR, SERVER_ERROR = 200, 300, 400, 500
AGAIN = frozenset({408, 425, 429})
REDIRECTS = frozenset({301, 308})
UNAUTHORIZED, FORBIDDEN, UPGRADE_REQUIRED = 401, 403, 426
ABOUT_THE_WORKER = frozenset({UNAUTHORIZED, FORBIDDEN, UPGRADE_REQUIRED}) | REDIRECTS
LONGEST_RETRY_AFTER_S = 60.0
EXCERPT_LENGTH = 120


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
    if status in AGAIN or status >= SERVER_ERROR or (REDIRECT <= status < CLIENT_ERROR and status not in REDIRECTS):
        raise ServerAway(f"the server answered {status}", _retry_after_s(headers.get("retry-after", "")))
    if status in REDIRECTS:
        raise ServerRefused(
            status, "moved", f"it has moved to {headers.get('location', 'nowhere')[:EXCERPT_LENGTH]}; use that URL"
        )
    try:
        problem = json.loads(body)
    except (ValueError, RecursionError):
        problem = None
    fields = problem if isinstance(problem, dict) else {}
    code = str(fields.get("code") or f"http_{status}")
    may_enrol = code == "unauthorized" or fields.get("may_enrol") is True
    raise ServerRefused(status, code, str(fields.get("detail") or "no reason given"), may_enrol=may_enrol)


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        excerpt = " ".join(body[:EXCERPT_LENGTH].decode("utf-8", "replace").split())
        raise ServerAway(f"the server answered with {excerpt!r}, which is no JSON object; is a proxy in between?")
    return value


def _retry_after_s(text: str) -> float:
    """Return the seconds of a Retry-After header, 60 at most; 0 for a date, which needs this machine's clock."""
    return min(LONGEST_RETRY_AFTER_S, retry_after_s(text) or 0.0)


PROTOCOL = 2
CONNECT_S = 5.0
ANSWER_S = 15.0
SLACK_S = 5.0  # beyond what the server said it would wait
IDLE_S = 4.0  # servers close idle connections after five seconds or later
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 10.0
JSON_HEADERS = {"Accept": "application/json", "Content-Type": "application/json"}


class Caller:
    """The connections of one event loop. `on_drain` is called, on that loop, if an answer asks the worker to drain."""

    def __init__(self, url: str, credentials: Credentials, on_drain: Callable[[], None]) -> None:
        self.credentials = credentials
        self._url = url
        self._on_drain = on_drain
        self._http = httpx2.AsyncClient(
            transport=httpx2.AsyncHTTPTransport(
                proxy=proxy_of(url),
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=IDLE_S),
                socket_options=keepalive(),
            ),
            headers={
                **JSON_HEADERS,
                "User-Agent": f"callsheet-worker/{VERSION}",
                "Callsheet-Protocol": str(PROTOCOL),
            },
            follow_redirects=False,
        )

    async def close(self) -> None:
        """Close all connections. May be called twice."""
        await self._http.aclose()

    async def call(self, verb: str, body: dict[str, Any], *, wait_s: float = 0.0) -> dict[str, Any]:
        """POST to `/internal/worker/<verb>` and return the answer, for which the server may wait `wait_s`.

        Raises ServerAway or ServerRefused.
        """
        total_s = wait_s + SLACK_S if wait_s else ANSWER_S
        self.credentials.refresh()
        text = json.dumps({"worker_id": self.credentials.worker_id, **body, "protocol": PROTOCOL}, allow_nan=False)
        token = self.credentials.token
        try:
            answer = await self._send(verb, text, token, total_s)
        except ServerRefused as refused:
            if refused.status != UNAUTHORIZED or not await self.credentials.changed_since(token):
                raise
            answer = await self._send(verb, text, self.credentials.token, total_s)
        if answer.get("drain") is True:
            self._on_drain()
        return answer

    async def patiently(self, verb: str, body: dict[str, Any], *, for_s: float) -> dict[str, Any]:
        """Call a verb, and retry with full jitter while the server is away; raises ServerAway after `for_s` seconds."""
        until, failures = time.monotonic() + for_s, 0
        while True:
            try:
                return await self.call(verb, body)
            except ServerAway as away:
                pause_s = pause(failures, away)
                failures += 1
                if time.monotonic() + pause_s > until:
                    raise
                await asyncio.sleep(pause_s)

    async def _send(self, verb: str, text: str, token: str, total_s: float) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        limits = httpx2.Timeout(total_s, connect=CONNECT_S)
        try:
            with http_errors_as(lambda error: ServerAway(f"no answer from {self._url} ({reason_of(error)})")):
                async with asyncio.timeout(total_s):
                    answer = await self._http.post(
                        f"{self._url}/internal/worker/{verb}", content=text.encode(), headers=headers, timeout=limits
                    )
        except TimeoutError:
            raise ServerAway(f"no answer from {self._url} within {total_s:g} s") from None
        return read(answer.status_code, answer.headers, answer.content)


def pause(failures: int, away: ServerAway) -> float:
    """Return the seconds before the next try: the server's Retry-After, plus a random time below a doubling limit."""
    return away.retry_after_s + pause_after(failures, FIRST_PAUSE_S, LONGEST_PAUSE_S, jitter=1)


def proxy_of(url: str) -> str | None:
    """Return the environment's proxy for a URL; httpx2 reads no proxy settings for an explicit transport."""
    target = httpx2.URL(url)
    proxies = urllib.request.getproxies()
    with contextlib.suppress(OSError):
        if urllib.request.proxy_bypass(target.host):
            return None
    return proxies.get(target.scheme) or proxies.get("all")


def keepalive() -> list[tuple[int, int, int]]:
    """Return socket options that detect a dead peer within half a minute."""
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options
