"""An HTTP proxy that does what networks do: answers get lost, come late, or are somebody else's page.

It stands before one server on this machine and asks `fate` what becomes of each request. Each goes over a connection of
its own to the server, which is closed when the client leaves.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

MOST_BYTES = 64 * 1024 * 1024
CHUNK = 65_536
PAGE = b"<!doctype html><title>Welcome</title><p>Please sign in to use this network."


class Asked(NamedTuple):
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def verb(self) -> str:
        """The last part of its path, such as `claim`."""
        return self.path.rstrip("/").rpartition("/")[2]

    @property
    def said(self) -> dict[str, Any]:
        """Its body as an object; empty when it is none."""
        try:
            found = json.loads(self.body)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


class Answered(NamedTuple):
    """An answer; status 0: there was none."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def said(self) -> dict[str, Any]:
        """Its body as an object; empty when it is none."""
        return Asked("", "", {}, self.body).said


class Fate(NamedTuple):
    """What becomes of one request.

    `instead`: the server never hears of it, this is the answer. `cut`: the server has done it, the answer is lost.
    `hole`: the same, and the connection stays open in silence. `unheard`: cut before the server hears of it. `late_s`:
    the answer comes later. `change`: the answer's object is changed on its way.
    """

    instead: Answered | None = None
    cut: bool = False
    hole: bool = False
    unheard: bool = False
    late_s: float = 0.0
    change: Callable[[dict[str, Any]], dict[str, Any]] | None = None


def page(status: int = 200) -> Answered:
    """A page of somebody else's."""
    return Answered(status, {"Content-Type": "text/html"}, PAGE)


def problem(status: int, code: str, **headers: str) -> Answered:
    """An answer that is an error."""
    body = json.dumps({"status": status, "code": code, "detail": f"the test-kit says {code}"}).encode()
    return Answered(status, {"Content-Type": "application/problem+json", **headers}, body)


class Passed(NamedTuple):
    """A request that came through, what the server answered and what became of it."""

    asked: Asked
    answered: Answered
    fate: Fate


async def _fine(asked: Asked) -> Fate:  # noqa: ARG001 - the fate of all requests
    return Fate()


@dataclass
class FaultProxy:
    """`async with FaultProxy.before(url) as proxy:`; then clients use `proxy.url`."""

    target: tuple[str, int]
    fate: Callable[[Asked], Any] = _fine
    url: str = ""
    passed: list[Passed] = field(default_factory=list)
    waiting: int = 0
    _open: set[asyncio.Task[None]] = field(default_factory=set)

    @classmethod
    @contextlib.asynccontextmanager
    async def before(cls, url: str, fate: Callable[[Asked], Any] | None = None) -> AsyncIterator[FaultProxy]:
        """A proxy on a free port; `fate` is a function or a coroutine function from `Asked` to `Fate`."""
        parts = urlsplit(url)
        proxy = cls((parts.hostname or "127.0.0.1", parts.port or 80), fate or _fine)
        server = await asyncio.start_server(proxy._connected, "127.0.0.1", 0, limit=MOST_BYTES)
        host, port = server.sockets[0].getsockname()[:2]
        proxy.url = f"http://{host}:{port}"
        try:
            yield proxy
        finally:
            server.close()
            for task in list(proxy._open):
                task.cancel()
            await asyncio.gather(*proxy._open, return_exceptions=True)

    def lead_to(self, url: str) -> None:
        """Use another server from now on."""
        parts = urlsplit(url)
        self.target = (parts.hostname or "127.0.0.1", parts.port or 80)

    def cut_all(self) -> None:
        """Break all connections that are open now."""
        for task in list(self._open):
            task.cancel()

    def count(self, verb: str) -> int:
        """How many requests of this verb there were."""
        return sum(one.asked.verb == verb for one in self.passed)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a client, request after request."""
        try:
            while (asked := await _read_request(reader)) is not None:
                decision = self.fate(asked)
                fate: Fate = await decision if asyncio.iscoroutine(decision) else decision
                if not await self._pass(asked, fate, reader, writer):
                    return
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            return  # the client has gone
        finally:
            writer.transport.abort()

    async def _pass(self, asked: Asked, fate: Fate, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request; False when its connection is over."""
        if fate.unheard:
            self.passed.append(Passed(asked, Answered(0, {}, b""), fate))
            return False
        answered = fate.instead or await self._forward(asked, reader)
        if answered is None:
            return False
        self.passed.append(Passed(asked, answered, fate))
        if fate.cut:
            return False
        if fate.hole:
            await reader.read(CHUNK)  # until the client leaves
            return False
        await asyncio.sleep(fate.late_s)
        if fate.change is not None:
            answered = answered._replace(body=json.dumps(fate.change(answered.said)).encode())
        writer.write(_written(answered))
        await writer.drain()
        return True

    async def _forward(self, asked: Asked, client: asyncio.StreamReader) -> Answered | None:
        """The server's answer; None when the client left before it came, or the server gave none."""
        try:
            reader, writer = await asyncio.open_connection(*self.target, limit=MOST_BYTES)
        except OSError:
            return None
        self.waiting += 1
        answer = asyncio.create_task(_exchange(asked, reader, writer))
        disconnect = asyncio.create_task(client.read(1))
        try:
            await asyncio.wait({answer, disconnect}, return_when=asyncio.FIRST_COMPLETED)
            return await answer if answer.done() else None
        except (OSError, asyncio.IncompleteReadError, ValueError):
            return None
        finally:
            self.waiting -= 1
            for task in (answer, disconnect):
                task.cancel()
            await asyncio.gather(answer, disconnect, return_exceptions=True)
            writer.transport.abort()


async def _read_request(reader: asyncio.StreamReader) -> Asked | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, headers = _head(head)
    method, path, _ = first.split(" ", 2)
    return Asked(method, path, headers, await reader.readexactly(int(headers.get("content-length", "0"))))


async def _exchange(asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Answered:
    headers_sent = {name: value for name, value in asked.headers.items() if name not in ("connection", "keep-alive")}
    lines = [
        f"{asked.method} {asked.path} HTTP/1.1",
        *(f"{k}: {v}" for k, v in headers_sent.items()),
        "connection: close",
    ]
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + asked.body)
    await writer.drain()
    first, headers = _head(await reader.readuntil(b"\r\n\r\n"))
    length = headers.get("content-length")
    body = await reader.readexactly(int(length)) if length is not None else await reader.read()
    return Answered(int(first.split(" ")[1]), headers, body)


def _head(head: bytes) -> tuple[str, dict[str, str]]:
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return first, {name.strip().lower(): value.strip() for name, _, value in pairs}


def _written(answered: Answered) -> bytes:
    hop_headers = ("connection", "content-length", "transfer-encoding", "keep-alive")
    headers = {name: value for name, value in answered.headers.items() if name.lower() not in hop_headers}
    lines = [f"HTTP/1.1 {answered.status} .", *(f"{name}: {value}" for name, value in headers.items())]
    head = "\r\n".join([*lines, f"content-length: {len(answered.body)}", "", ""])
    return head.encode("latin-1") + answered.body
