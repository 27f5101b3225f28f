"""A receiver in a process of its own: it answers 200 at once on its ports, and nothing at all on the last one."""

from __future__ import annotations

import asyncio
import re
import time

from bench.http.talk import answer

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
EVENT = re.compile(rb"\r\nx-euterpe-event-id: ([\w-]+)\r\n")
LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n")


class Receiver(asyncio.Protocol):
    """One connection."""

    def __init__(self, sink: Sink, *, answers: bool) -> None:
        self._sink = sink
        self._answers = answers
        self._got = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment] # uvloop's have their own classes

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, found, body = self._got.partition(b"\r\n\r\n")
        length, event = LENGTH.search(head + b"\r\n"), EVENT.search(head + b"\r\n")
        if found and length and event and len(body) >= int(length[1]) and self._answers:
            self._sink.arrived[event[1].decode()] = time.monotonic_ns()
            self._transport.write(ANSWER)
            self._transport.close()


class Sink:
    """The ports, and when each event came."""

    def __init__(self) -> None:
        self.arrived: dict[str, int] = {}
        self._servers: list[asyncio.Server] = []

    async def open(self, ports: int) -> list[int]:
        loop = asyncio.get_running_loop()
        for n in range(ports + 1):
            made = await loop.create_server(lambda n=n: Receiver(self, answers=n < ports), "127.0.0.1", 0)  # type: ignore[misc]
            self._servers.append(made)
        return [server.sockets[0].getsockname()[1] for server in self._servers]

    async def take(self) -> dict[str, int]:
        """What came since the last time it was asked."""
        came, self.arrived = self.arrived, {}
        return came


if __name__ == "__main__":
    sink = Sink()
    answer({"open": sink.open, "take": sink.take})
