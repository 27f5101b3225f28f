"""One guarded POST: one deadline from the name to the last byte, a bounded answer, no redirects, no proxies.

Each request has a connection of its own, to an address that the guard has judged for this request.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import Mapping
from typing import NamedTuple

from callsheet.kernel.errors import CallsheetError, InvalidInput

from .answers import Limits, NoHttp, Parsed
from .guard import BlockedTarget, Resolve, Rules, SystemResolver, Target, addresses_of, is_same, target_of

FIXED = ("user-agent: callsheet", "accept-encoding: identity", "connection: close")
IS_LINE = re.compile(r"[ -~]+").fullmatch


class Answer(NamedTuple):
    """What came back."""

    status: int
    retry_after: str
    body: bytes
    took_ms: int


class PostFailed(CallsheetError):
    """No answer came back."""

    code = "post_failed"


class Unreachable(PostFailed):
    """No connection. It tells not why: whoever reads it could map a network with it."""

    code = "unreachable"


class NoAnswer(PostFailed):
    """A connection, but no whole answer within the deadline."""

    code = "timeout"


class BadAnswer(PostFailed):
    """What came back is no HTTP, is cut off, or has a head beyond all measure."""

    code = "bad_answer"


class TlsFailed(PostFailed):
    """The other end has no certificate that fits its name."""

    code = "tls_failed"


class Outlet:
    """The way out for callbacks: rules, limits and a resolver, shared by many requests."""

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
        """Let go of the resolver's threads. May be called twice."""
        if self._own is not None:
            self._own.close()

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Send a body once; raises InvalidTarget, BlockedTarget or a kind of PostFailed."""
        begun = time.monotonic()
        target = target_of(url, self.rules)
        exchange: _Exchange | None = None
        try:
            async with asyncio.timeout(self.limits.deadline_s):
                exchange = await self._connect(target)
                exchange.transport.write(_request(target, body, headers))
                await exchange.ended
        except TimeoutError:
            if exchange is None:
                raise Unreachable("no connection") from None
            raise NoAnswer(f"no whole answer within {self.limits.deadline_s:g} s") from None
        except (OSError, NoHttp, RuntimeError):  # uvloop: RuntimeError for a transport that was closed meanwhile
            raise BadAnswer("the answer is no HTTP, was cut off, or its head is too long") from None
        finally:
            if exchange is not None:
                exchange.transport.abort()  # a graceful close would wait for the other end
        parsed = exchange.parsed
        took_ms = round((time.monotonic() - begun) * 1000)
        return Answer(parsed.status, parsed.retry_after, bytes(parsed.kept), took_ms)

    async def _connect(self, target: Target) -> _Exchange:
        """A connection to an address that was judged; to the next one where one is silent."""
        found = await addresses_of(target, self.rules, self._resolve)
        for left, address in zip(range(len(found), 0, -1), found, strict=True):
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


class _Exchange(asyncio.Protocol):
    """One connection and the answer that comes on it. A stream in its place took 8 % of a delivery's CPU time."""

    transport: asyncio.Transport

    def __init__(self, limits: Limits, ended: asyncio.Future[None]) -> None:
        self.parsed = Parsed(limits)
        self.ended = ended

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment] # uvloop's have their own classes

    def data_received(self, data: bytes) -> None:
        """More of the answer; b"" is its end."""
        if self.ended.done():
            return
        try:
            self.parsed.feed(data)
        except NoHttp as error:
            self.ended.set_exception(error)
        else:
            if self.parsed.done:
                self.ended.set_result(None)

    def eof_received(self) -> None:
        self.data_received(b"")

    def connection_lost(self, error: Exception | None) -> None:
        if error is None:
            self.data_received(b"")
        elif not self.ended.done():
            self.ended.set_exception(error)
        if self.ended.done() and not self.ended.cancelled():
            self.ended.exception()  # nobody waits for it any more, or will


async def guarded_post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    rules: Rules | None = None,
    limits: Limits | None = None,
) -> Answer:
    """One POST by an outlet of its own, for those who send few; raises what Outlet.post raises."""
    outlet = Outlet(rules, limits)
    try:
        return await outlet.post(url, body, headers)
    finally:
        outlet.close()


def _request(target: Target, body: bytes, headers: Mapping[str, str]) -> bytes:
    lines = [
        f"POST {target.path} HTTP/1.1",
        f"host: {target.authority}",
        f"content-length: {len(body)}",
        *FIXED,
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
