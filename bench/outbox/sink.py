"""A webhook receiver in its own process: all ports answer 200 at once, except the last, which never answers."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

from bench.http.talk import answer

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
EVENT = re.compile(rb"\r\nx-euterpe-event-id: ([\w-]+)\r\n")
LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n")


class Receiver(asyncio.Protocol):
    """A connection of a webhook sender."""

    def __init__(self, sink: Sink, *, answers: bool) -> None:
        self._sink = sink
        self._answers = answers
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment] # uvloop's have their own classes

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, separator, body = self._buffer.partition(b"\r\n\r\n")
        length, event = LENGTH.search(head + b"\r\n"), EVENT.search(head + b"\r\n")
        if separator and length and event and len(body) >= int(length[1]) and self._answers:
            self._sink.add(event[1].decode())
            self._transport.write(ANSWER)
            self._transport.close()


class Sink:
    """The listening ports, and when each event arrived."""

    def __init__(self) -> None:
        self.arrivals: dict[str, int] = {}
        self._repeats = 0
        self._servers: list[asyncio.Server] = []

    def add(self, event_id: str) -> None:
        """Note that an event arrived, and count it as a repeat if it had arrived since the last `take`."""
        self._repeats += event_id in self.arrivals
        self.arrivals.setdefault(event_id, time.monotonic_ns())

    async def open(self, ports: int) -> list[int]:
        loop = asyncio.get_running_loop()
        for n in range(ports + 1):
            listener = await loop.create_server(lambda n=n: Receiver(self, answers=n < ports), "127.0.0.1", 0)  # type: ignore[misc]
            self._servers.append(listener)
        return [server.sockets[0].getsockname()[1] for server in self._servers]

    async def take(self) -> dict[str, Any]:
        """Return the events that arrived since the last call, and how many arrived twice."""
        answer = {"arrivals": self.arrivals, "repeats": self._repeats}
        self.arrivals, self._repeats = {}, 0
        return answer


if __name__ == "__main__":
    sink = Sink()
    answer({"open": sink.open, "take": sink.take})
