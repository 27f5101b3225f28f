"""The load of `POST /v1/jobs`: keep-alive connections that each send the next request when an answer is there."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any, cast

from bench.http.talk import answer

CONNECT_S = 10.0


class _Connection(asyncio.Protocol):
    """One connection. `taken` are pairs of when an answer was whole and how long it took."""

    def __init__(self, request: bytes, taken: list[tuple[float, float]], refused: Counter[str]) -> None:
        self._request, self._taken, self._refused = request, taken, refused
        self._buffer = b""
        self._sent = 0.0
        self.running = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer + data if self._buffer else data
        head = buffer.find(b"\r\n\r\n")
        if head < 0 or len(buffer) < head + 4 + _length(buffer, head):
            self._buffer = buffer
            return
        self._buffer = b""
        now = time.perf_counter()
        self._taken.append((now, now - self._sent))
        if buffer[9:12] != b"202":
            self._refused[buffer[9:12].decode("latin-1")] += 1
        if self.running:
            self._send()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        if self.running:
            self._refused["lost"] += 1

    def _send(self) -> None:
        self._sent = time.perf_counter()
        self.transport.write(self._request)


def _length(buffer: bytes, head: int) -> int:
    at = buffer.find(b"content-length: ", 0, head)
    return int(buffer[at + 16 : buffer.index(b"\r", at)]) if at >= 0 else 0


async def run(port: int, key: str, body: str, connections: int, warm_s: float, seconds: float) -> dict[str, Any]:  # noqa: PLR0913, PLR0917 - asked by name
    """Load a server for some seconds, after some that do not count."""
    request = (
        f"POST /v1/jobs HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer {key}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n{body}"
    ).encode()
    taken: list[tuple[float, float]] = []
    refused: Counter[str] = Counter()
    loop = asyncio.get_running_loop()
    made = []
    for _ in range(connections):
        async with asyncio.timeout(CONNECT_S):
            _, one = await loop.create_connection(lambda: _Connection(request, taken, refused), "127.0.0.1", port)
        made.append(one)
    await asyncio.sleep(warm_s)
    begun, cpu = time.perf_counter(), time.process_time()
    await asyncio.sleep(seconds)
    ended, cpu = time.perf_counter(), time.process_time() - cpu
    for one in made:
        one.running = False
    await asyncio.sleep(0.1)  # the last answers
    for one in made:
        one.transport.close()
    counted = [took for at, took in taken if begun <= at < ended]
    return {
        "seconds": ended - begun,
        "took_ms": [round(1000 * took, 3) for took in counted],
        "answered": len(taken),
        "refused": dict(refused),
        "load_cpu": cpu / (ended - begun),
    }


if __name__ == "__main__":
    answer({"run": run})
