"""Readers of event streams: note when each chunk of bytes arrived on many connections. Frames are parsed afterwards."""

from __future__ import annotations

import asyncio
import bisect
import itertools
import re
import time
from collections.abc import Sequence
from typing import Any, cast

from bench.http.talk import answer, ranks

AT_ONCE = 64
PATIENCE_S = 60.0
FRAME = re.compile(rb"(?s)(.*?)\n\n")
NUMBER = re.compile(rb'(?:"n":|"message":"#)(\d+)')  # a frame may have both: its first is its number
FIRST = (b"event: hello", b"event: job-status")


class _Stream(asyncio.Protocol):
    """One reader. `pieces` are what came, `times` when."""

    def __init__(self, request: bytes, is_open: asyncio.Future[None]) -> None:
        self._request, self._is_open = request, is_open
        self.pieces: list[bytes] = []
        self.times: list[int] = []
        self.keeps = False
        self.closing = False
        self.is_lost = False
        self._head = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if self.keeps:
            self.times.append(time.monotonic_ns())
            self.pieces.append(data)
        elif not self._is_open.done():
            self._head += data
            if any(first in self._head for first in FIRST):
                self._is_open.set_result(None)
                self._head = b""
            elif not self._head.startswith(b"HTTP/1.1 200"):
                self._is_open.set_exception(ConnectionError(self._head[:1000].decode("latin-1")))

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = not self.closing
        if not self._is_open.done():
            self._is_open.set_exception(exc or ConnectionError("closed before its first frame"))

    def arrivals(self) -> list[tuple[int, int]]:
        """Return the number of each event that arrived, and when its frame was whole."""
        ends = list(itertools.accumulate(map(len, self.pieces)))
        frames = FRAME.finditer(b"".join(self.pieces))
        return [
            (int(number[1]), self.times[bisect.bisect_left(ends, frame.end())])
            for frame in frames
            if (number := NUMBER.search(frame[1]))
        ]


class Readers:
    """All event streams of this process."""

    def __init__(self) -> None:
        self._streams: list[_Stream] = []

    async def open(
        self, port: int, key: str, jobs: Sequence[str], *, keeps: bool, under: str = "/v1/jobs"
    ) -> dict[str, Any]:
        """Open one stream per entry of `jobs`; a job may be listed several times."""
        start = time.monotonic()
        room = asyncio.Semaphore(AT_ONCE)
        loop = asyncio.get_running_loop()

        async def connect(job_id: str) -> _Stream:
            request = (
                f"GET {under}/{job_id}/events HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
                f"accept: text/event-stream\r\nauthorization: Bearer {key}\r\n\r\n"
            ).encode()
            is_open: asyncio.Future[None] = loop.create_future()
            async with room, asyncio.timeout(PATIENCE_S):
                _, stream = await loop.create_connection(lambda: _Stream(request, is_open), "127.0.0.1", port)
                await is_open
            stream.keeps = keeps
            return stream

        self._streams = list(await asyncio.gather(*map(connect, jobs)))
        return {"open": len(self._streams), "took_s": time.monotonic() - start}

    async def collect(self, writes: Sequence[tuple[int, int, int, int]], wait_s: float) -> dict[str, Any]:
        """Return the count and latencies of arrivals.

        `writes` are (first number, how many, asked, acknowledged), times in nanoseconds.
        `repeats` counts the events that one stream got more than once; only the first arrival is measured.
        """
        await asyncio.sleep(wait_s)
        moments = {
            first + i: (asked_ns, acknowledged_ns)
            for first, count, asked_ns, acknowledged_ns in writes
            for i in range(count)
        }
        streams = [[pair for pair in stream.arrivals() if pair[0] in moments] for stream in self._streams]
        firsts = [dict(reversed(pairs)) for pairs in streams]
        arrivals = [pair for first in firsts for pair in first.items()]
        since_request = [(at - moments[n][0]) / 1e9 for n, at in arrivals]
        since_commit = [(at - moments[n][1]) / 1e9 for n, at in arrivals]
        times = [at for _, at in arrivals]
        return {
            "deliveries": len(arrivals),
            "repeats": sum(map(len, streams)) - len(arrivals),
            "rate": len(arrivals) / ((max(times) - min(times)) / 1e9) if arrivals else 0.0,
            "asked_ms": ranks(since_request) if arrivals else {},
            "committed_ms": ranks(since_commit) if arrivals else {},
        }

    async def close(self) -> dict[str, Any]:
        """Close all streams; return the number of streams that the server had closed."""
        is_lost = sum(stream.is_lost for stream in self._streams)
        for stream in self._streams:
            stream.closing = True
            stream.transport.abort()
        self._streams = []
        await asyncio.sleep(0.2)
        return {"lost": is_lost}


if __name__ == "__main__":
    readers = Readers()
    answer({"open": readers.open, "collect": readers.collect, "close": readers.close})
