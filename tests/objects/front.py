"""A proxy before a real S3 that injects errors into some requests and forwards others."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

ERROR = '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>no</Message></Error>'
Verdict = tuple[int, str] | None


@dataclass
class Front:
    """`judge` gets a request's method, target and head, and says a status and an error code; None passes it on.

    Requests with a method in `away` are cut off unanswered, as by an unreachable storage.
    """

    target: tuple[str, int]
    judge: Callable[[str, str, str], Verdict]
    url: str = ""
    away: frozenset[str] = frozenset()
    passed: list[tuple[str, str]] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request; then the connection ends."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            method, target, _ = head.split("\r\n", 1)[0].split(" ")
            length = re.search(r"(?i)content-length: (\d+)", head)
            body = await reader.readexactly(int(length[1])) if length else b""
            if method in self.away:
                writer.transport.abort()
                return
            verdict = self.judge(method, target, head)
            (self.passed if verdict is None else self.refused).append((method, target))
            if verdict is not None:
                text = ERROR.format(code=verdict[1]) if method != "HEAD" else ""
                message = f"HTTP/1.1 {verdict[0]} No\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n{text}"
                writer.write(message.encode())
            else:
                await self._pass_on(head, body, writer)
            await writer.drain()
        writer.close()

    async def _pass_on(self, head: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        back, there = await asyncio.open_connection(*self.target)
        once = re.sub(r"(?i)\r\nconnection: [^\r]*", "", head).replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n")
        there.write(once.encode("latin-1") + body)
        while piece := await back.read(65_536):
            writer.write(piece)
            await writer.drain()
        there.close()


@contextlib.asynccontextmanager
async def fronting(endpoint: str, judge: Callable[[str, str, str], Verdict]) -> AsyncIterator[Front]:
    """A front on a free port."""
    place = urlsplit(endpoint)
    assert place.hostname is not None
    assert place.port is not None
    front = Front((place.hostname, place.port), judge)
    server = await asyncio.start_server(front.serve, "127.0.0.1", 0, limit=1024 * 1024)
    front.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield front
    finally:
        server.close()
