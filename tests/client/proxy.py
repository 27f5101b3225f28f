"""A TCP proxy that cuts connections after so many bytes of the server's answers, and can be led to another server."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

Address = tuple[str, int]


def never() -> None:
    """Let a connection live."""


def anywhere(seed: int, longest: int) -> Callable[[], int]:
    """Cut each connection at a random byte of its answers, of a head as well as of an event."""
    dice = random.Random(seed)
    return lambda: dice.randrange(longest)


@dataclass
class Proxy:
    """Forwards connections between a client and `target`. `budget` limits the bytes of each connection; None is all.

    While `is_mute`, the proxy answers nothing and closes nothing.
    """

    target: Address
    budget: Callable[[], int | None] = never
    cuts: int = 0
    url: str = ""
    is_mute: bool = False
    _open: set[asyncio.StreamWriter] = field(default_factory=set)
    _streams: set[asyncio.StreamWriter] = field(default_factory=set)
    _mute: set[asyncio.StreamWriter] = field(default_factory=set)

    def lead_to(self, url: str) -> None:
        """Use another server from now on."""
        self.target = address(url)

    def cut_all(self) -> None:
        """Cut all open connections."""
        for writer in list(self._open):
            self.cuts += 1
            writer.transport.abort()

    def mute_streams(self) -> None:
        """Let nothing more through event streams that are open now, and leave them open.

        A dead connection stays silent.
        """
        self._mute |= self._streams

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection of a client."""
        self._open.add(writer)
        try:
            with contextlib.suppress(OSError):
                there, back = await asyncio.open_connection(*self.target)
                try:
                    await self._both(reader, writer, there, back)
                finally:
                    back.transport.abort()
        finally:
            self._open.discard(writer)
            self._streams.discard(writer)
            self._mute.discard(writer)
            writer.transport.abort()

    async def _both(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        there: asyncio.StreamReader,
        back: asyncio.StreamWriter,
    ) -> None:
        asking = asyncio.create_task(_copy(reader, back))
        answering = asyncio.create_task(self._answers(there, writer))
        try:
            await asyncio.wait([asking, answering], return_when=asyncio.FIRST_COMPLETED)
            if answering.done() and not answering.exception():
                with contextlib.suppress(OSError):
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
        finally:
            asking.cancel()
            answering.cancel()
            await asyncio.gather(asking, answering, return_exceptions=True)

    async def _answers(self, there: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = self.budget()
        while chunk := await there.read(65_536):
            if b"content-type: text/event-stream" in chunk.lower():  # scripts have the latter half in them
                self._streams.add(writer)
            if writer in self._mute or self.is_mute:
                continue
            if left is not None and len(chunk) >= left:
                writer.write(chunk[:left])
                await writer.drain()
                self.cuts += 1
                return
            left = None if left is None else left - len(chunk)
            writer.write(chunk)
            await writer.drain()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(65_536):
        writer.write(chunk)
        await writer.drain()


def address(url: str) -> Address:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


@contextlib.asynccontextmanager
async def before(url: str, budget: Callable[[], int | None] = never) -> AsyncIterator[Proxy]:
    """A proxy before the server at a URL, on a free port."""
    proxy = Proxy(address(url), budget)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    proxy.url = f"http://{host}:{port}"
    try:
        yield proxy
    finally:
        server.close()
        proxy.cut_all()
