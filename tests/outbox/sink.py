"""Well-behaved and misbehaving receivers: real sockets on loopback, in this event loop."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple, Self

from callsheet.net.guard import Rules
from callsheet.net.guarded_client import Limits

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))
RULES = Rules(http=True, networks=LOOPBACK, any_port=True)
QUICK, CALM = Limits(deadline_s=0.5), Limits(deadline_s=60.0)


class Got(NamedTuple):
    """A received request."""

    path: str
    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def event_id(self) -> str:
        return self.headers["x-euterpe-event-id"]


Behave = Callable[["Sink", Got, asyncio.StreamWriter], Awaitable[None]]


def answer(status: str = "200 OK", body: bytes = b"ok", **headers: str) -> Behave:
    async def behave(_: Sink, __: Got, writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await writer.drain()

    return behave


def raw(*parts: bytes, every_s: float = 0.0, times: int = 1) -> Behave:
    """Send raw parts, repeating the last part."""

    async def behave(_: Sink, __: Got, writer: asyncio.StreamWriter) -> None:
        for part in (*parts, *parts[-1:] * (times - 1)):
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(every_s)
        await asyncio.sleep(3600)

    return behave


async def silent(_: Sink, __: Got, ___: asyncio.StreamWriter) -> None:
    await asyncio.sleep(3600)


class Sink:
    """`async with Sink()`: a receiver. `turns` are its answers, the last one for ever; `by_path` takes precedence."""

    def __init__(self, *turns: Behave, host: str = "127.0.0.1") -> None:
        self.host = host
        self.turns = list(turns or (answer(),))
        self.by_path: dict[str, Behave] = {}
        self.got: list[Got] = []
        self.connections = 0
        self.open = 0
        self.most_open = 0
        self._arrived = asyncio.Condition()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, self.host, 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._tasks: set[asyncio.Task[None]] = set()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def ids(self) -> list[str]:
        return [request.event_id for request in self.got]

    async def until(self, count: int, patience_s: float = 60) -> list[Got]:
        """Wait until so many requests have come."""
        async with asyncio.timeout(patience_s), self._arrived:
            await self._arrived.wait_for(lambda: len(self.got) >= count)
        return self.got

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                request = await _read(reader)
                async with self._arrived:
                    self.got.append(request)
                    self._arrived.notify_all()
                turn = self.turns[0] if len(self.turns) == 1 else self.turns.pop(0)
                await self.by_path.get(request.path, turn)(self, request, writer)
        finally:
            self.open -= 1
            self._tasks.discard(task)
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Got:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Got(first.split()[1], headers, body, asyncio.get_running_loop().time())


@contextlib.asynccontextmanager
async def never_accepts() -> AsyncIterator[str]:
    """A URL whose connections are never made: the line of waiting ones is full."""
    import socket  # noqa: PLC0415

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    port = listener.getsockname()[1]
    fillers = []
    for _ in range(8):
        filler = socket.socket()
        filler.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            filler.connect(("127.0.0.1", port))
        fillers.append(filler)
    await asyncio.sleep(0.05)
    yield f"http://127.0.0.1:{port}/"
    for sock in (*fillers, listener):
        sock.close()
