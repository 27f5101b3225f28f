"""One POST to a model server, with time limits. The HTTP library's errors are translated here."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import weakref
from collections.abc import AsyncIterator
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx2

from callsheet.net.driver_errors import http_errors_as, reason_of
from callsheet.net.retry_after import retry_after_s

from .errors import Away, CutOff, LlmError, NotConfigured, RequestRefused, Unavailable, Unreachable
from .settings import Endpoint

CONNECT_S = 10.0
FIRST_S = 300.0  # a small machine reads a long prompt for minutes before its first word
CHUNK_S = 60.0
LONGEST_WAIT_S = 3600.0
ERROR_BYTES = 16 * 1024
MESSAGE_CHARS = 500
BUSY = frozenset({408, 409, 425})  # a problem of this request alone
AWAY = frozenset({429, 502, 503, 504})  # a problem of the server, for any request


_clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, httpx2.AsyncClient] = weakref.WeakKeyDictionary()


def _client() -> httpx2.AsyncClient:
    """Return the HTTP client of this event loop; creating one costs 20 ms for certificates.

    No state passes from one request to another: no kept connection that the server may have closed, and no cookie of
    a job that another job would send.
    """
    loop = asyncio.get_running_loop()
    if (client := _clients.get(loop)) is None:
        client = _clients[loop] = httpx2.AsyncClient(
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            follow_redirects=False,
        )
    return client


@contextlib.asynccontextmanager
async def open_post(endpoint: Endpoint, path: str, body: dict[str, Any]) -> AsyncIterator[httpx2.Response]:
    """Yield the response before its body is read; leaving the block closes the connection. Redirects are errors."""
    response = await _send(endpoint, path, body)
    try:
        with http_errors_as(lambda error: CutOff(f"the model's answer broke off ({_reason(endpoint, error)})")):
            if not response.is_success:
                raise await _refusal(endpoint, response)
            yield response
    finally:
        await response.aclose()


async def _send(endpoint: Endpoint, path: str, body: dict[str, Any]) -> httpx2.Response:
    limits = httpx2.Timeout(CHUNK_S, connect=CONNECT_S, read=FIRST_S)
    url, headers = endpoint.address(path), endpoint.headers()
    try:
        request = _client().build_request("POST", url, json=body, headers=headers, timeout=limits)
    except httpx2.InvalidURL:
        raise NotConfigured("the model's address cannot be read; check CALLSHEET_LLM_URL") from None

    def failure(error: Exception) -> LlmError:
        reason = _reason(endpoint, error)
        if isinstance(error, httpx2.UnsupportedProtocol):
            return NotConfigured(f"the model's address cannot be used: {reason}")
        return Unreachable(f"the model's server at {_place(endpoint)} cannot be reached ({reason})")

    with http_errors_as(failure):
        return await _client().send(request, stream=True)


async def chunks_of(response: httpx2.Response) -> AsyncIterator[bytes]:
    """Yield the body in chunks, inside `open_post`. Raises CutOff when the server falls silent."""
    chunks = response.aiter_bytes()
    while True:
        try:
            async with asyncio.timeout(CHUNK_S):
                chunk = await anext(chunks)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise CutOff(f"the model sent nothing for {CHUNK_S:g} s in the middle of its answer") from None
        yield chunk


async def body_of(response: httpx2.Response, limit_bytes: int) -> bytes:
    """Return the body, cut at `limit_bytes`."""
    body = bytearray()
    async for chunk in chunks_of(response):
        body += chunk
        if len(body) > limit_bytes:
            break
    return bytes(body[:limit_bytes])


def _reason(endpoint: Endpoint, error: Exception) -> str:
    """Return the message of a driver's error, without the endpoint's secrets."""
    return endpoint.hide(reason_of(error))


async def _refusal(endpoint: Endpoint, response: httpx2.Response) -> LlmError:
    status = response.status_code
    if response.is_redirect:
        advice = "redirects are not followed; set the server's final address"
        return RequestRefused(f"the server at {_place(endpoint)} answered {status}, a redirect; {advice}")
    reason = clip(endpoint, _message(await body_of(response, ERROR_BYTES)))
    if status in AWAY or status in BUSY or status >= 500:  # noqa: PLR2004 - HTTP's own numbers
        after_s = retry_after_s(response.headers.get("Retry-After", ""), time.time())
        after_s = None if after_s is None else min(after_s, LONGEST_WAIT_S)
        kind = Away if status in AWAY else Unavailable
        return kind(f"the model's server answered {status}: {reason}", after_s=after_s)
    return RequestRefused(f"the model's server refused the request, {status}: {reason}")


def clip(endpoint: Endpoint, text: str) -> str:
    """Return a server's text as one short line, without our API key."""
    line = " ".join(endpoint.hide(text).split())
    return line if len(line) <= MESSAGE_CHARS else f"{line[:MESSAGE_CHARS]}…"


def _message(body: bytes) -> str:
    """Return the reason in an error body: OpenAI's `error.message`, Ollama's `error`, or the plain text."""
    text = body.decode("utf-8", "replace")
    try:
        content = json.loads(text)
        content = content.get("error", content) if isinstance(content, dict) else content
        content = content.get("message", content) if isinstance(content, dict) else content
    except (ValueError, RecursionError):
        return text or "no reason given"
    return content if isinstance(content, str) else text


def _place(endpoint: Endpoint) -> str:
    """Return host and port, without a user name or password that the URL may carry."""
    url = httpx2.URL(endpoint.url)
    return f"{url.host}:{url.port}" if url.port else url.host
