"""An OpenAI-compatible server on a free port, as small and as ill-behaved as a test asks for.

It implements HTTP by hand, to break off anywhere and notice a client's hang-up.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

WORDS = ("The ", "cat ", "sat ", "down.")
USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
DIMENSIONS = 64


@dataclass
class Request:
    """A received request."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


Behave = Callable[["Server", Request, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Server:
    """Answers each chat with the next of `turns`, the last one for ever."""

    turns: list[Behave]
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)
    streaming: asyncio.Event = field(default_factory=asyncio.Event)
    on_embed: Behave | None = None
    url: str = ""

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls, *turns: Behave) -> AsyncIterator[Self]:
        server = cls(list(turns) or [say()])
        listener = await asyncio.start_server(server._serve, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        server.url = f"http://127.0.0.1:{port}/v1"
        try:
            yield server
        finally:
            listener.close()

    @property
    def chats(self) -> list[dict[str, Any]]:
        return [request.body for request in self.requests if request.path == "/v1/chat/completions"]

    @property
    def embeds(self) -> list[dict[str, Any]]:
        return [request.body for request in self.requests if request.path == "/v1/embeddings"]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            request = await _read(reader)
            self.requests.append(request)
            answering = asyncio.ensure_future(self._behave(request)(self, request, writer))
            leaving = asyncio.ensure_future(reader.read(1))  # the client sends nothing more: this is its end
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
            left = not answering.done()
            answering.cancel()
            leaving.cancel()
            error, _ = await asyncio.gather(answering, leaving, return_exceptions=True)
            if left or isinstance(error, ConnectionError):
                self.hung_up.set()
        writer.close()

    def _behave(self, request: Request) -> Behave:
        if request.path.endswith("/embeddings"):
            return self.on_embed or embed
        return self.turns[0] if len(self.turns) == 1 else self.turns.pop(0)


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(first.split()[1], headers, json.loads(body or b"{}"))


def event(data: Any) -> bytes:
    return b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n"


def piece(text: str | None = None, finish: str | None = None) -> bytes:
    delta = {} if text is None else {"content": text}
    return event({"model": "tiny", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


async def begin(writer: asyncio.StreamWriter, status: str = "200 OK", **headers: str) -> None:
    headers_sent = {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked", **headers}
    lines = [f"HTTP/1.1 {status}", *(f"{name.replace('_', '-')}: {value}" for name, value in headers_sent.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    await writer.drain()


async def send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
    await writer.drain()


def stream(*parts: bytes, pause_s: float = 0.0, whole: bool = True, hang: bool = False) -> Behave:
    """Send parts of a stream; then end it well, break off (`whole=False`) or fall silent (`hang`)."""

    async def behave(server: Server, _: Request, writer: asyncio.StreamWriter) -> None:
        await begin(writer)
        for part in parts:
            await send(writer, part)
            server.streaming.set()
            await asyncio.sleep(pause_s)
        if hang:
            await asyncio.sleep(3600)
        if whole:
            writer.write(b"0\r\n\r\n")
            await writer.drain()

    return behave


def say(*words: str, pause_s: float = 0.0) -> Behave:
    """A whole answer, word by word."""
    pieces = [piece(word) for word in words or WORDS]
    end = [piece(finish="stop"), event({"model": "tiny", "choices": [], "usage": USAGE}), event(b"[DONE]")]
    return stream(*pieces, *end, pause_s=pause_s)


def refuse(status: str, body: Any = None, **headers: str) -> Behave:
    """Return an error response with a body: JSON, or raw bytes."""
    data = body if isinstance(body, bytes) else json.dumps(body if body is not None else {"error": "no"}).encode()

    async def behave(_: Server, __: Request, writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(data)}", "Content-Type: application/json"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + data)
        await writer.drain()

    return behave


async def embed(server: Server, request: Request, writer: asyncio.StreamWriter) -> None:
    """Texts that share words have vectors that are alike."""
    texts = request.body["input"]
    data = [{"index": n, "embedding": vector_of(text)} for n, text in enumerate(texts)]
    answer = {"model": request.body.get("model", "bag"), "data": data[::-1]}
    await refuse("200 OK", answer)(server, request, writer)


def vector_of(text: str, dimensions: int = DIMENSIONS) -> list[float]:
    vector = [0.01] * dimensions
    for word in text.lower().replace(".", " ").replace("?", " ").split():
        vector[int.from_bytes(hashlib.sha256(word.encode()).digest()[:4]) % dimensions] += 1.0
    return vector


def text_of(events: Sequence[Any]) -> str:
    """What a client shows that follows the events of a job."""
    shown_text = ""
    for event in events:
        if event.type == "restart":
            shown_text = ""
        elif event.type == "token":
            shown_text += json.loads(event.data)["text"]
    return shown_text
