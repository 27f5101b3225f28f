"""A guarded HTTP POST: one deadline from name resolution to the last byte, bounded response, no redirects or proxies.

Each request opens a new connection, to an address checked by the guard for this request.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import Mapping
from typing import NamedTuple

import httptools

from callsheet.kernel.errors import CallsheetError, InvalidInput

from .guard import BlockedTarget, Resolve, Rules, SystemResolver, Target, addresses_of, is_same, target_of

FIXED_HEADERS = ("user-agent: callsheet", "accept-encoding: identity", "connection: close")
IS_LINE = re.compile(r"[ -~]+").fullmatch
FINAL = 200


class Limits(NamedTuple):
    """Limits of one request. `kept_bytes` of the response body are returned, later bytes are discarded."""

    deadline_s: float = 15.0
    head_bytes: int = 16 * 1024
    body_bytes: int = 64 * 1024
    kept_bytes: int = 1024


class Answer(NamedTuple):
    """The status, Retry-After header, beginning of the body and duration of a response."""

    status: int
    retry_after: str
    body: bytes
    took_ms: int


class PostFailed(CallsheetError):
    """The POST got no valid response."""

    code = "post_failed"


class Unreachable(PostFailed):
    """The connection failed. The error gives no reason, since readers could map a network with reasons."""

    code = "unreachable"


class NoAnswer(PostFailed):
    """The connection succeeded, but no complete response arrived before the deadline."""

    code = "timeout"


class BadAnswer(PostFailed):
    """The response is malformed: not HTTP, truncated, or head longer than allowed."""

    code = "bad_answer"


class TlsFailed(PostFailed):
    """The TLS handshake failed, for example by a certificate for another name."""

    code = "tls_failed"


class GuardedClient:
    """The HTTP client for callbacks: rules, limits and a resolver shared by all requests."""

    def __init__(
        self,
        rules: Rules | None = None,
        limits: Limits | None = None,
        *,
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.rules = rules or Rules()
        self.limits = limits or Limits()
        self._own = SystemResolver() if resolve is None else None
        self._resolve: Resolve = resolve or self._own  # type: ignore[assignment] # one of both is there
        self._tls = tls or _tls()

    def close(self) -> None:
        """Shut down the resolver's threads. Calling twice is allowed."""
        if self._own is not None:
            self._own.close()

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Send a body once and return the response; raises InvalidTarget, BlockedTarget or a subclass of PostFailed."""
        started_at = time.monotonic()
        target = target_of(url, self.rules)
        exchange: _Exchange | None = None
        try:
            async with asyncio.timeout(self.limits.deadline_s):
                exchange = await self._connect(target)
                exchange.transport.write(_request(target, body, headers))
                await exchange.end
        except TimeoutError:
            if exchange is None:
                raise Unreachable("no connection") from None
            raise NoAnswer(f"no whole answer within {self.limits.deadline_s:g} s") from None
        except (OSError, NoHttp, RuntimeError):  # uvloop: RuntimeError for a transport that was closed meanwhile
            raise BadAnswer("the answer is no HTTP, was cut off, or its head is too long") from None
        finally:
            if exchange is not None:
                exchange.transport.abort()  # a graceful close would wait for the other end
        response = exchange.response
        took_ms = round((time.monotonic() - started_at) * 1000)
        return Answer(response.status, response.retry_after, bytes(response.beginning), took_ms)

    async def _connect(self, target: Target) -> _Exchange:
        """Connect to the target's checked addresses in turn, each within a share of the deadline."""
        addresses = await addresses_of(target, self.rules, self._resolve)
        for left, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
            try:
                if left == 1:
                    exchange = await self._open(target, address)
                else:
                    async with asyncio.timeout(self.limits.deadline_s / (left + 1)):
                        exchange = await self._open(target, address)
            except ssl.SSLError as error:
                reason = getattr(error, "verify_message", "") or error.reason or "no TLS"
                raise TlsFailed(f"no TLS connection: {reason}") from None
            except OSError:
                continue
            peer = exchange.transport.get_extra_info("peername")
            if not peer or not is_same(peer[0], address):
                exchange.transport.abort()
                raise BlockedTarget("the connection led to another address than was asked for")
            return exchange
        raise Unreachable("no connection")

    async def _open(self, target: Target, address: str) -> _Exchange:
        loop = asyncio.get_running_loop()
        exchange = _Exchange(self.limits, loop.create_future())
        if target.tls:
            await loop.create_connection(
                lambda: exchange, address, target.port, ssl=self._tls, server_hostname=target.host
            )
        else:
            await loop.create_connection(lambda: exchange, address, target.port)
        return exchange


class NoHttp(Exception):
    """Malformed response: not HTTP, truncated, or head longer than allowed."""


class Parsed:
    """One HTTP response. The parser calls the `on_…` methods."""

    def __init__(self, limits: Limits) -> None:
        self.status = 0
        self.retry_after = ""
        self.beginning = bytearray()
        self.is_done = False
        self._limits = limits
        self._received_bytes = self._body_bytes = 0
        self._has_length = False
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Parse received bytes, b"" at the end of the connection; raises NoHttp."""
        if not data:
            if not self.status or self._has_length:
                raise NoHttp("the answer was cut off")
            self.is_done = True  # a body without a length ends with the connection
            return
        self._received_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.is_done = True
        except httptools.HttpParserError:
            if not self.is_done:
                raise NoHttp("the answer is no HTTP") from None
        if not self.status and self._received_bytes > self._limits.head_bytes:
            raise NoHttp("the head of the answer is too long")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Handle a header of the current message."""
        lower = name.lower()
        if lower == b"retry-after":
            self.retry_after = value.decode("latin-1")
        elif lower in (b"content-length", b"transfer-encoding"):
            self._has_length = True

    def on_headers_complete(self) -> None:
        """Handle the end of a head; interim 1xx heads precede the final response."""
        status = self._parser.get_status_code()
        if status >= FINAL or status == 101:  # noqa: PLR2004 - who switches protocols says no more in this one
            self.status = status

    def on_body(self, data: bytes) -> None:
        """Handle a piece of the body."""
        self._body_bytes += len(data)
        self.beginning += data[: max(0, self._limits.kept_bytes - len(self.beginning))]
        self.is_done = self.is_done or self._body_bytes >= self._limits.body_bytes

    def on_message_complete(self) -> None:
        """Handle the end of a message."""
        self.is_done = self.is_done or bool(self.status)
        self._has_length = False


class _Exchange(asyncio.Protocol):
    """One HTTP connection and its response. An asyncio stream instead took 8 % of a delivery's CPU time."""

    transport: asyncio.Transport

    def __init__(self, limits: Limits, end: asyncio.Future[None]) -> None:
        self.response = Parsed(limits)
        self.end = end

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment] # uvloop's have their own classes

    def data_received(self, data: bytes) -> None:
        """Parse received bytes of the response; b"" marks the end."""
        if self.end.done():
            return
        try:
            self.response.feed(data)
        except NoHttp as error:
            self.end.set_exception(error)
        else:
            if self.response.is_done:
                self.end.set_result(None)

    def eof_received(self) -> None:
        self.data_received(b"")

    def connection_lost(self, error: Exception | None) -> None:
        if error is None:
            self.data_received(b"")
        elif not self.end.done():
            self.end.set_exception(error)
        if self.end.done() and not self.end.cancelled():
            self.end.exception()  # marks the error as retrieved, since nobody awaits the future any more


def _request(target: Target, body: bytes, headers: Mapping[str, str]) -> bytes:
    lines = [
        f"POST {target.path} HTTP/1.1",
        f"host: {target.authority}",
        f"content-length: {len(body)}",
        *FIXED_HEADERS,
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    if not all(map(IS_LINE, lines)):
        raise InvalidInput("a header has a character that it must not have")
    return "\r\n".join([*lines, "", ""]).encode() + body


def _tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context
