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

CHUNK_BYTES = 16 * 1024
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
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(self.limits.deadline_s):
                reader, writer = await self._connect(target)
                writer.write(_request(target, body, headers))
                await writer.drain()
                status, retry_after, kept = await self._answer(reader)
        except TimeoutError:
            if writer is None:
                raise Unreachable("no connection") from None
            raise NoAnswer(f"no whole answer within {self.limits.deadline_s:g} s") from None
        except (OSError, NoHttp):
            raise BadAnswer("the answer is no HTTP, was cut off, or its head is too long") from None
        finally:
            if writer is not None:
                writer.transport.abort()  # a graceful close would wait for the other end
        return Answer(status, retry_after, kept, round((time.monotonic() - begun) * 1000))

    async def _connect(self, target: Target) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to an address that was judged; to the next one where one is silent."""
        found = await addresses_of(target, self.rules, self._resolve)
        for left, address in zip(range(len(found), 0, -1), found, strict=True):
            try:
                async with asyncio.timeout(self.limits.deadline_s / (left + 1) if left > 1 else None):
                    reader, writer = await self._open(target, address)
            except ssl.SSLError as error:
                reason = getattr(error, "verify_message", "") or error.reason or "no TLS"
                raise TlsFailed(f"no TLS connection: {reason}") from None
            except OSError:
                continue
            peer = writer.get_extra_info("peername")
            if not peer or not is_same(peer[0], address):
                writer.transport.abort()
                raise BlockedTarget("the connection led to another address than was asked for")
            return reader, writer
        raise Unreachable("no connection")

    async def _open(self, target: Target, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if not target.tls:
            return await asyncio.open_connection(address, target.port, limit=CHUNK_BYTES)
        return await asyncio.open_connection(
            address, target.port, limit=CHUNK_BYTES, ssl=self._tls, server_hostname=target.host
        )

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[int, str, bytes]:
        """Status, Retry-After and the beginning of the body, which is left as it came."""
        parsed = Parsed(self.limits)
        while not parsed.done:
            parsed.feed(await reader.read(CHUNK_BYTES))
        return parsed.status, parsed.retry_after, bytes(parsed.kept)


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
