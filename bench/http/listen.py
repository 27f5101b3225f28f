"""Readers of event streams: many connections, and when each byte of theirs was here. Frames are parsed afterwards."""

from __future__ import annotations

import asyncio
import bisect
import re
import time
from collections.abc import Sequence
from typing import Any, cast

from bench.http.talk import answer, ranks

AT_ONCE = 64
PATIENCE_S = 60.0
NUMBER = re.compile(rb'(?:"n":|"message":"#)(\d+)')
FIRST = (b"event: hello", b"event: job-status")


class _Stream(asyncio.Protocol):
    """One reader. `pieces` are what came, `times` when."""

    def __init__(self, request: bytes, opened: asyncio.Future[None]) -> None:
        self._request, self._opened = request, opened
        self.pieces: list[bytes] = []
        self.times: list[int] = []
        self.keeps = False
        self.closing = False
        self.lost = False
        self._head = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if self.keeps:
            self.times.append(time.monotonic_ns())
            self.pieces.append(data)
        elif not self._opened.done():
            self._head += data
            if any(first in self._head for first in FIRST):
                self._opened.set_result(None)
                self._head = b""
            elif not self._head.startswith(b"HTTP/1.1 200"):
                self._opened.set_exception(ConnectionError(self._head[:300].decode("latin-1")))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = not self.closing
        if not self._opened.done():
            self._opened.set_exception(exc or ConnectionError("closed before its first frame"))

    def arrivals(self) -> list[tuple[int, int]]:
        """The number of each event that came, and when its frame was whole."""
        ends: list[int] = []
        total = 0
        for piece in self.pieces:
            total += len(piece)
            ends.append(total)
        found = NUMBER.finditer(b"".join(self.pieces))
        return [(int(match[1]), self.times[bisect.bisect_left(ends, match.end())]) for match in found]


class Readers:
    """All streams of this process."""

    def __init__(self) -> None:
        self._streams: list[_Stream] = []

    async def open(
        self, port: int, key: str, jobs: Sequence[str], *, keeps: bool, under: str = "/v1/jobs"
    ) -> dict[str, Any]:
        """One stream for each of the jobs, which may stand there several times."""
        begun = time.monotonic()
        room = asyncio.Semaphore(AT_ONCE)
        loop = asyncio.get_running_loop()

        async def connect(job_id: str) -> _Stream:
            request = (
                f"GET {under}/{job_id}/events HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
                f"accept: text/event-stream\r\nauthorization: Bearer {key}\r\n\r\n"
            ).encode()
            opened: asyncio.Future[None] = loop.create_future()
            async with room, asyncio.timeout(PATIENCE_S):
                _, stream = await loop.create_connection(lambda: _Stream(request, opened), "127.0.0.1", port)
                await opened
            stream.keeps = keeps
            return stream

        self._streams = list(await asyncio.gather(*map(connect, jobs)))
        return {"open": len(self._streams), "took_s": time.monotonic() - begun}

    async def collect(self, writes: Sequence[tuple[int, int, int, int]], wait_s: float) -> dict[str, Any]:
        """Latencies of all that came; `writes` are (first number, how many, asked, acknowledged) in nanoseconds."""
        await asyncio.sleep(wait_s)
        moments = {first + i: (asked, done) for first, count, asked, done in writes for i in range(count)}
        arrivals = [pair for stream in self._streams for pair in stream.arrivals() if pair[0] in moments]
        asked = [(at - moments[n][0]) / 1e9 for n, at in arrivals]
        acknowledged = [(at - moments[n][1]) / 1e9 for n, at in arrivals]
        times = [at for _, at in arrivals]
        return {
            "deliveries": len(arrivals),
            "rate": len(arrivals) / ((max(times) - min(times)) / 1e9) if arrivals else 0.0,
            "asked_ms": ranks(asked) if arrivals else {},
            "committed_ms": ranks(acknowledged) if arrivals else {},
        }

    async def close(self) -> dict[str, Any]:
        """Let all go; how many were lost before."""
        lost = sum(stream.lost for stream in self._streams)
        for stream in self._streams:
            stream.closing = True
            stream.transport.abort()
        self._streams = []
        await asyncio.sleep(0.2)
        return {"lost": lost}


if __name__ == "__main__":
    readers = Readers()
    answer({"open": readers.open, "collect": readers.collect, "close": readers.close})
