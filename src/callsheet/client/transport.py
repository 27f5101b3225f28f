"""Requests to one server: authorization, retries, and the errors of broken connections."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self

import httpx2

from callsheet.kernel.errors import InvalidInput
from callsheet.net.driver_errors import http_errors_as, reason_of
from callsheet.settings import DEFAULT_URL

from .errors import ApiError, ServerUnreachable, UnexpectedAnswer, problem_of
from .patience import Patience, Pauses
from .records import Part

EVENT_STREAM = "text/event-stream"
MOST_QUOTED = 60


class Transport:
    """The HTTP connections to one server with one API key, which appears only in request headers."""

    def __init__(self, url: str | None, api_key: str | None, patience: Patience) -> None:
        self.url = _checked_url(url or os.environ.get("CALLSHEET_URL") or DEFAULT_URL)
        self.patience = patience
        key = api_key if api_key is not None else os.environ.get("CALLSHEET_API_KEY", "")
        self._http = httpx2.AsyncClient(
            base_url=self.url,
            headers={"Accept": "application/json", **_authorization(key)},
            timeout=httpx2.Timeout(patience.answer_s, connect=patience.connect_s, pool=None),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),  # each stream is a connection
        )

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.__aexit__(kind, error, trace)

    async def close(self) -> None:
        """Close all connections. Safe to call twice."""
        await self._http.aclose()

    async def get(self, path: str, query: Mapping[str, str | int] | None = None) -> Any:
        """GET a path, with retries, and return the JSON of the response."""
        return await self._until_answered(self._http.build_request("GET", path, params=query))

    async def post(self, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Any:
        """POST JSON to a path and return the JSON of the response. Retries repeat the request: keep it idempotent."""
        try:
            request = self._http.build_request("POST", path, json=body, headers=headers)
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"this cannot be sent as JSON: {error}") from error
        return await self._until_answered(request)

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str], headers: Mapping[str, str], silence_s: float | None = None
    ) -> AsyncIterator[httpx2.Response]:
        """Open an event stream, or get a 204. Raises ServerUnreachable, also while reading and after a silence."""
        silence_s = self.patience.silence_s if silence_s is None else silence_s
        request = self._http.build_request(
            "GET",
            path,
            params=query,
            headers={"Accept": EVENT_STREAM, "Accept-Encoding": "identity", "Cache-Control": "no-store", **headers},
            timeout=httpx2.Timeout(silence_s, connect=self.patience.connect_s, pool=None),
        )
        with _errors_of(self.url):
            answer = await self._http.send(request, stream=True)
            try:
                await _check_stream(answer)
                yield answer
            finally:
                await answer.aclose()

    async def send(self, part: Part, content: AsyncIterator[bytes]) -> None:
        """Send a part of a file to its signed URL, once, without the API key: the storage may be a third party's."""
        headers = {**part.headers, "Content-Length": str(part.size)}
        request = self._http.build_request(part.method, part.url, content=content, headers=headers)
        request.headers.pop("Authorization", None)
        with _errors_of(request.url.host):
            answer = await self._http.send(request)
        if not answer.is_success:
            raise problem_of(answer)

    async def _until_answered(self, request: httpx2.Request) -> Any:
        pauses = Pauses(self.patience, self.patience.retry_for_s)
        while True:
            try:
                with _errors_of(self.url):
                    return _read(await self._http.send(request))
            except ServerUnreachable as error:
                await pauses.after(error)
            except ApiError as error:
                if not error.again:
                    raise
                await pauses.after(error)


def _errors_of(url: str) -> AbstractContextManager[None]:
    return http_errors_as(
        lambda error: ServerUnreachable(f"no answer from {url} ({reason_of(error)})"), keeps_cause=True
    )


def _read(answer: httpx2.Response) -> Any:
    if not answer.is_success:
        raise problem_of(answer)
    try:
        return answer.json()
    except ValueError as error:
        beginning = " ".join(answer.text.split())[:MOST_QUOTED]
        raise UnexpectedAnswer(f"{answer.url.host} answered with {beginning!r}; is this a Callsheet server?") from error


async def _check_stream(answer: httpx2.Response) -> None:
    if answer.status_code == HTTPStatus.NO_CONTENT:
        return
    if answer.status_code != HTTPStatus.OK:
        await answer.aread()
        raise problem_of(answer)
    content_type = answer.headers.get("Content-Type", "")
    if content_type.partition(";")[0].strip().lower() != EVENT_STREAM:
        raise UnexpectedAnswer(f"{answer.url.host} answered with {content_type or 'nothing'}, not with {EVENT_STREAM}")


def _checked_url(text: str) -> str:
    """Return a base URL without trailing slash; raise InvalidInput without quoting the URL, which may hold secrets."""
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL as error:
        raise InvalidInput(f"the server's URL cannot be read; write {DEFAULT_URL}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise InvalidInput(f"the server's URL must begin with http:// or https://; write {DEFAULT_URL}")
    if url.userinfo or url.query or url.fragment:
        raise InvalidInput("the server's URL holds more than scheme, host and path; the key goes into api_key")
    return str(url).rstrip("/")


def _authorization(key: str) -> dict[str, str]:
    """Return the Authorization header of a key. Invalid characters raise here, as a later error would show the key."""
    if not key:
        return {}
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise InvalidInput("the API key has characters that no key has; was it pasted with a space or a line end?")
    return {"Authorization": f"Bearer {key}"}
