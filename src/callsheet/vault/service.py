"""JSON requests to a key service, with errors that contain no part of request or response."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import httpx2

from callsheet.net.backoff import pause_after
from callsheet.net.driver_errors import http_errors_as

from .errors import KeyServiceUnavailable

TIMEOUT_S = 10.0
TRIES = 3
LONGEST_PAUSE_S = 5.0
BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})


class Answer(NamedTuple):
    """The status and JSON object of a response."""

    status: int
    body: dict[str, Any]


class Service:
    """One HTTP client for a key service; a request is retried twice while the service is busy or unreachable."""

    def __init__(self, name: str, *, timeout_s: float = TIMEOUT_S, pause_s: float = 0.2) -> None:
        self._name = name
        self._pause_s = pause_s
        self._client = httpx2.AsyncClient(timeout=timeout_s, follow_redirects=False, trust_env=False)

    async def ask(self, method: str, url: str, *, body: bytes = b"", headers: dict[str, str]) -> Answer:
        """Send a request and return its first answer without a busy status; raises KeyServiceUnavailable."""
        why = ""
        for failures in range(TRIES):
            if failures:
                await asyncio.sleep(pause_after(failures, self._pause_s, LONGEST_PAUSE_S))
            try:
                with http_errors_as(lambda error: KeyServiceUnavailable(type(error).__name__)):
                    response = await self._client.request(method, url, content=body, headers=headers)
            except KeyServiceUnavailable as error:
                why = str(error)
                continue
            if response.status_code not in BUSY:
                return Answer(response.status_code, _json(response))
            why = f"status {response.status_code}"
        raise KeyServiceUnavailable(f"{self._name} cannot be reached now ({why}); try again later") from None

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()


def _json(response: httpx2.Response) -> dict[str, Any]:
    try:
        body = response.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
