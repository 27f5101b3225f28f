"""A server with scripted answers, byte by byte, that records requests."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

STREAM = {"Content-Type": "text/event-stream"}
JSON = {"Content-Type": "application/json"}
PROBLEM = {"Content-Type": "application/problem+json"}


class Asked(NamedTuple):
    """A recorded request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    at: float


class Answer(NamedTuple):
    """What is written back. `hang` leaves the connection open; `status` 0 writes nothing."""

    status: int = 200
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed
    body: bytes = b""
    hang: bool = False


CUT = Answer(0)
SILENCE = Answer(0, hang=True)


def told(body: Any, status: int = 200) -> Answer:
    return Answer(status, JSON, json.dumps(body).encode())


def problem(status: int, code: str, **headers: str) -> Answer:
    body = {"status": status, "code": code, "detail": "no", "request_id": "r1"}
    return Answer(
        status, {**PROBLEM, **{n.replace("_", "-"): v for n, v in headers.items()}}, json.dumps(body).encode()
    )


def stream(*frames: bytes, hang: bool = False) -> Answer:
    return Answer(200, STREAM, b"".join(frames), hang)


def event(seq: int, type: str = "token", **data: Any) -> bytes:
    body = {"id": f"1000-{seq}", "job_id": "j", "seq": seq, "type": type, "ts": 1000, "step": "", "progress": 0}
    return f"id: 1000-{seq}\nevent: {type}\ndata: {json.dumps({**body, 'data': data})}\n\n".encode()


def job(status: str = "running", seq: int = 1, **fields: Any) -> dict[str, Any]:
    return {"job_id": "j", "task": "chat", "status": status, "last_event_id": f"1000-{seq}", **fields}


@dataclass
class Scripted:
    """The last answer is repeated."""

    answers: list[Answer]
    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while await self._once(reader, writer):
                pass
        writer.transport.abort()

    async def _once(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.asked.append(Asked(method, path, headers, body, asyncio.get_running_loop().time()))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if not answer.status:
            return await self._leave(reader, answer)
        is_stream = answer.headers.get("Content-Type") == STREAM["Content-Type"]
        length = {} if is_stream or answer.status == 204 else {"Content-Length": str(len(answer.body))}
        lines = [f"HTTP/1.1 {answer.status} X", *(f"{n}: {v}" for n, v in {**answer.headers, **length}.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode() + answer.body)
        await writer.drain()
        if is_stream:
            await self._leave(reader, answer)
            writer.close()
        return not is_stream

    async def _leave(self, reader: asyncio.StreamReader, answer: Answer) -> bool:
        if answer.hang:
            await reader.read()
            self.gone.set()
        return False


@contextlib.asynccontextmanager
async def scripted(*answers: Answer) -> AsyncIterator[Scripted]:
    """The server on a free port."""
    script = Scripted(list(answers))
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    script.url = f"http://{host}:{port}"
    try:
        yield script
    finally:
        server.close()
