"""HTTP requests of a remote worker: timeouts, the token, and the translation of httpx2's errors."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import httpx2

from callsheet.net.backoff import pause_after
from callsheet.net.driver_errors import http_errors_as, reason_of

from .answers import UNAUTHORIZED, ServerAway, ServerRefused, read
from .credentials import Credentials
from .options import VERSION

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
        until, tried = time.monotonic() + for_s, 0
        while True:
            try:
                return await self.call(verb, body)
            except ServerAway as away:
                pause_s = pause(tried, away)
                tried += 1
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


def pause(tried: int, away: ServerAway) -> float:
    """Return the seconds before the next try: the server's Retry-After, plus a random time below a doubling limit."""
    return away.retry_after_s + pause_after(tried, FIRST_PAUSE_S, LONGEST_PAUSE_S, jitter=1)


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
