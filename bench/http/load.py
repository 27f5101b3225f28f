"""The load of `POST /v1/jobs`: keep-alive connections that each send the next request when an answer is there."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any, cast

from bench.http.talk import answer

PATIENCE_S = 10.0


class _Connection(asyncio.Protocol):
    """One connection. `taken` are pairs of when an answer was whole and how long it took."""

    def __init__(self, request: bytes, latencies: list[tuple[float, float]], refusals: Counter[str]) -> None:
        self._request, self._latencies, self._refusals = request, latencies, refusals
        self._buffer = b""
        self._sent_at = 0.0
        self.running = True
        self.is_waiting = False
        self.sent_count = 0

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
        self.is_waiting = False
        now = time.perf_counter()
        self._latencies.append((now, now - self._sent_at))
        if buffer[9:12] != b"202":
            self._refusals[buffer[9:12].decode("latin-1")] += 1
        if self.running:
            self._send()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        if self.running or self.is_waiting:
            self._refusals["lost"] += 1
        self.running = self.is_waiting = False

    def _send(self) -> None:
        self.is_waiting = True
        self.sent_count += 1
        self._sent_at = time.perf_counter()
        self.transport.write(self._request)


def _length(buffer: bytes, head: int) -> int:
    at = buffer.find(b"content-length: ", 0, head)
    return int(buffer[at + 16 : buffer.index(b"\r", at)]) if at >= 0 else 0


async def run(port: int, key: str, body: str, connections: int, warm_s: float, seconds: float) -> dict[str, Any]:  # noqa: PLR0913, PLR0917 - asked by name
    """Load a server for `seconds`, after `warm_s` seconds of warm-up that are not measured."""
    request = (
        f"POST /v1/jobs HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer {key}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n{body}"
    ).encode()
    latencies: list[tuple[float, float]] = []
    refusals: Counter[str] = Counter()
    loop = asyncio.get_running_loop()
    connections_open = []
    for _ in range(connections):
        async with asyncio.timeout(PATIENCE_S):
            _, one = await loop.create_connection(lambda: _Connection(request, latencies, refusals), "127.0.0.1", port)
        connections_open.append(one)
    await asyncio.sleep(warm_s)
    start, cpu = time.perf_counter(), time.process_time()
    await asyncio.sleep(seconds)
    end, cpu = time.perf_counter(), time.process_time() - cpu
    for one in connections_open:
        one.running = False
    async with asyncio.timeout(PATIENCE_S):
        while any(one.is_waiting for one in connections_open):  # noqa: ASYNC110 - the last answers; not measured
            await asyncio.sleep(0.01)
    for one in connections_open:
        one.transport.close()
    durations = [took for at, took in latencies if start <= at < end]
    return {
        "seconds": end - start,
        "took_ms": [round(1000 * took, 3) for took in durations],
        "sent": sum(one.sent_count for one in connections_open),
        "answered": len(latencies),
        "refused": dict(refusals),
        "load_cpu": cpu / (end - start),
    }


if __name__ == "__main__":
    answer({"run": run})
