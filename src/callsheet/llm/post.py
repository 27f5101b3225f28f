"""One POST to a model's server: its time limits, and the edge where the HTTP library's errors become ours."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import time
import weakref
from collections.abc import AsyncIterator
from email.utils import parsedate_to_datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx2

from callsheet.kernel.origin import is_from_driver

from .errors import Away, CutOff, LlmError, NotConfigured, RequestRefused, Unavailable, Unreachable
from .settings import Endpoint

CONNECT_S = 10.0
FIRST_S = 300.0  # a small machine reads a long prompt for minutes before its first word
CHUNK_S = 60.0
LONGEST_WAIT_S = 3600.0
ERROR_BYTES = 16 * 1024
MESSAGE_CHARS = 500
BUSY = frozenset({408, 409, 425})  # of this request
AWAY = frozenset({429, 502, 503, 504})  # of the server, whatever it is asked


_clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, httpx2.AsyncClient] = weakref.WeakKeyDictionary()


def _client() -> httpx2.AsyncClient:
    """The one client of this process (of each of its event loops): to make one takes 20 ms, for its certificates.

    It keeps nothing from one request to the next: no connection that its server may have closed meanwhile, no cookie
    of one job that another would send.
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
async def posted(endpoint: Endpoint, path: str, body: dict[str, Any]) -> AsyncIterator[httpx2.Response]:
    """An answer whose body is still to be read; leaving the block closes the connection. Redirects are errors."""
    response = await _sent(endpoint, path, body)
    try:
        if not response.is_success:
            raise await _refusal(endpoint, response)
        yield response
    except httpx2.TransportError as error:
        raise _cut_off(endpoint, error) from None
    finally:
        await response.aclose()


async def _sent(endpoint: Endpoint, path: str, body: dict[str, Any]) -> httpx2.Response:
    """Return the head of the answer; raises Unreachable when there is none."""
    limits = httpx2.Timeout(CHUNK_S, connect=CONNECT_S, read=FIRST_S)
    url, headers = endpoint.address(path), endpoint.headers()
    try:
        request = _client().build_request("POST", url, json=body, headers=headers, timeout=limits)
    except httpx2.InvalidURL:
        raise NotConfigured("the model's address cannot be read; check CALLSHEET_LLM_URL") from None
    try:
        return await _client().send(request, stream=True)
    except httpx2.UnsupportedProtocol as error:
        raise NotConfigured(f"the model's address cannot be used: {_words(endpoint, error)}") from None
    except Exception as error:
        if not is_from_driver(error, "httpx2"):
            raise
        words = _words(endpoint, error)
        raise Unreachable(f"the model's server at {_place(endpoint)} cannot be reached ({words})") from None


async def chunks_of(response: httpx2.Response) -> AsyncIterator[bytes]:
    """The body as it comes; raises CutOff when the server falls silent."""
    chunks = response.aiter_bytes()
    while True:
        try:
            async with asyncio.timeout(CHUNK_S):
                chunk = await anext(chunks)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise CutOff(f"the model said nothing for {CHUNK_S:g} s in the middle of its answer") from None
        except httpx2.TransportError:
            raise
        except Exception as error:
            if not is_from_driver(error, "httpx2"):
                raise
            raise CutOff(f"the model's answer broke off ({type(error).__name__})") from None
        yield chunk


async def body_of(response: httpx2.Response, limit_bytes: int) -> bytes:
    """The whole body, cut at a limit."""
    body = bytearray()
    async for chunk in chunks_of(response):
        body += chunk
        if len(body) > limit_bytes:
            break
    return bytes(body[:limit_bytes])


def _cut_off(endpoint: Endpoint, error: httpx2.TransportError) -> CutOff:
    return CutOff(f"the model's answer broke off ({_words(endpoint, error)})")


def _words(endpoint: Endpoint, error: Exception) -> str:
    """Return what a driver's error says, without the endpoint's secrets."""
    return endpoint.hide(str(error)) or type(error).__name__


async def _refusal(endpoint: Endpoint, response: httpx2.Response) -> LlmError:
    status = response.status_code
    if response.is_redirect:
        advice = "redirects are not followed; set the server's final address"
        return RequestRefused(f"the server at {_place(endpoint)} answered {status}, a redirect; {advice}")
    said = clipped(endpoint, _message(await body_of(response, ERROR_BYTES)))
    if status in AWAY or status in BUSY or status >= 500:  # noqa: PLR2004 - HTTP's own numbers
        after_s = _retry_after(response.headers.get("Retry-After", ""))
        kind = Away if status in AWAY else Unavailable
        return kind(f"the model's server answered {status}: {said}", after_s=after_s)
    return RequestRefused(f"the model's server refused the request, {status}: {said}")


def clipped(endpoint: Endpoint, text: str) -> str:
    """What a server said, short, on one line, and without our key."""
    line = " ".join(endpoint.hide(text).split())
    return line if len(line) <= MESSAGE_CHARS else f"{line[:MESSAGE_CHARS]}…"


def _message(body: bytes) -> str:
    """The reason in an error's body: OpenAI's `error.message`, Ollama's `error`, or the text itself."""
    text = body.decode("utf-8", "replace")
    try:
        said = json.loads(text)
        said = said.get("error", said) if isinstance(said, dict) else said
        said = said.get("message", said) if isinstance(said, dict) else said
    except (ValueError, RecursionError):
        return text or "no reason given"
    return said if isinstance(said, str) else text


def _retry_after(text: str) -> float | None:
    """Seconds to wait: `Retry-After` has a number or a date."""
    try:
        wait_s = float(text)
    except ValueError:
        try:
            wait_s = parsedate_to_datetime(text).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return None
    return min(max(0.0, wait_s), LONGEST_WAIT_S) if math.isfinite(wait_s) else None


def _place(endpoint: Endpoint) -> str:
    """Host and port, without a name or a password that the URL may carry."""
    url = httpx2.URL(endpoint.url)
    return f"{url.host}:{url.port}" if url.port else url.host
