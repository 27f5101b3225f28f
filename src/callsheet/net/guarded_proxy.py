"""A loopback proxy to a requester's storage, for drivers that resolve host names themselves.

Each proxy serves one endpoint. For every connection it resolves the name, checks all addresses, and connects to one of
the checked addresses, so a later DNS change has no effect. TLS passes through unchanged: the driver still verifies the
certificate by host name.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from .guard import BlockedTarget, Resolve, Rules, Target, addresses_of, is_same

if TYPE_CHECKING:
    from types import TracebackType

log = logging.getLogger("callsheet.transcode")
HEAD_BYTES = 64 * 1024
PIECE_BYTES = 256 * 1024
CONNECT_S = 10.0
HOP = ("connection:", "proxy-connection:", "proxy-authorization:", "keep-alive:")
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class GuardedProxy:
    """A running proxy inside `async with`; `url` is its address, `blocked_target` the error of a refusal."""

    def __init__(self, target: Target, rules: Rules, resolve: Resolve) -> None:
        self._target, self._rules, self._resolve = target, rules, resolve
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()
        self.blocked_target: BlockedTarget | None = None
        self.url = ""

    async def __aenter__(self) -> Self:
        """Start the proxy; raises BlockedTarget if the endpoint resolves to a forbidden address."""
        await addresses_of(self._target, self._rules, self._resolve)
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=HEAD_BYTES)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a server's handlers are tasks
        self._open.add(task)
        try:
            await self._pass_on(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            pass  # the driver reports the closed connection itself
        except asyncio.CancelledError:
            pass  # the storage is closed
        finally:
            self._open.discard(task)
            writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, _, rest = head.partition(" ")
        target = rest.partition(" ")[0]
        tunnel = method == "CONNECT"
        try:
            theirs = await self._connect(_place(target, tunnel=tunnel))
        except (BlockedTarget, OSError, TimeoutError) as error:
            if isinstance(error, BlockedTarget):
                self.blocked_target = error
                log.warning("a storage endpoint was refused: %s", error)
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
            return
        try:
            if tunnel:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                theirs[1].write(_by_path(head, target))
            await _join((reader, writer), theirs)
        finally:
            theirs[1].transport.abort()

    async def _connect(self, place: tuple[str, int]) -> Streams:
        """Connect to the first answering address among those checked for this connection."""
        if place != (self._target.host.lower(), self._target.port):
            raise BlockedTarget("the storage leads to another host than its endpoint")
        failure: Exception = OSError("no address")
        for address in await addresses_of(self._target, self._rules, self._resolve):
            try:
                async with asyncio.timeout(CONNECT_S):
                    reader, writer = await asyncio.open_connection(address, self._target.port, limit=PIECE_BYTES)
            except (OSError, TimeoutError) as error:
                failure = error
                continue
            peer = writer.get_extra_info("peername")
            if not peer or not is_same(peer[0], address):
                writer.transport.abort()
                raise BlockedTarget("the connection led to another address than was asked for")
            return reader, writer
        raise failure


def _place(target: str, *, tunnel: bool) -> tuple[str, int]:
    """Return host and port of a proxy request; an invalid request gives an empty host."""
    try:
        parts = urlsplit(f"//{target}" if tunnel else target)
        return (parts.hostname or "").lower(), parts.port or (443 if tunnel else 80)
    except ValueError:
        return "", 0


def _by_path(head: str, target: str) -> bytes:
    """Return a proxy request's head, rewritten for its server. Each connection carries a single request."""
    parts = urlsplit(target)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    first, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
    lines_kept = [line for line in lines if not line.lower().startswith(HOP)]
    return "\r\n".join([first.replace(target, path, 1), *lines_kept, "Connection: close", "", ""]).encode("latin-1")


async def _join(driver: Streams, storage: Streams) -> None:
    """Copy bytes in both directions until the storage closes or the driver disconnects."""
    upstream, downstream = (asyncio.create_task(_copy(a[0], b[1])) for a, b in ((driver, storage), (storage, driver)))
    try:
        await asyncio.wait({upstream, downstream}, return_when=asyncio.FIRST_COMPLETED)
        if downstream.done():
            driver[1].close()
            await driver[1].wait_closed()
    finally:
        upstream.cancel()
        downstream.cancel()
        await asyncio.gather(upstream, downstream, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(PIECE_BYTES):
            writer.write(piece)
            await writer.drain()
