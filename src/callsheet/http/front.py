"""The outermost part of the app, pure ASGI: request ids, the size of bodies, headers that every answer has, the log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from typing import TYPE_CHECKING, Any

from callsheet.engine.ids import new_id

from .problems import Problem, answer, path_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger("callsheet.access")
REQUEST_ID = re.compile(rb"(?!cs_live_)[A-Za-z0-9._:-]{1,64}").fullmatch  # it is logged: never a key
ALWAYS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
DRAIN_BYTES = 8 * 1024 * 1024
DRAIN_S = 1.0
STREAMED = "/objects/"  # bodies of this route go to the disk as they come, and its signed URLs say how large they are
STREAMED_BYTES = 5 * 1024**4  # as much as an S3 takes
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Front:
    """Wraps an ASGI app."""

    def __init__(self, app: ASGIApp, body_bytes: int) -> None:
        self._app = app
        self._body_bytes = body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        streamed = scope["method"] == "PUT" and scope["path"].startswith(STREAMED)
        exchange = _Exchange(scope, receive, send, STREAMED_BYTES if streamed else self._body_bytes)
        try:
            problem = exchange.refusal()
            if problem is not None:
                await answer(problem, exchange.request_id)(scope, receive, exchange.send)
            else:
                await self._app(scope, exchange.receive, exchange.send)
        except Exception:
            if not exchange.answered:  # else it was logged and answered with a problem
                raise
        finally:
            exchange.tell()


class _Exchange:
    """One request and its answer on their way through."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, body_bytes: int) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._limit, self._read, self._status = body_bytes, 0, 0
        self._begun = time.perf_counter()
        given = self._length = self._encoding = self._expects = b""
        self._more = False
        for name, value in scope["headers"]:
            if name == b"x-request-id":
                given = value
            elif name == b"content-length":
                self._length, self._more = value, value != b"0"
            elif name == b"transfer-encoding":
                self._more = True
            elif name == b"content-encoding":
                self._encoding = value
            elif name == b"expect":
                self._expects = value
        self.request_id = given.decode() if REQUEST_ID(given) else new_id()
        self._own = [(b"x-request-id", self.request_id.encode()), *ALWAYS]
        scope["callsheet.request_id"] = self.request_id

    @property
    def answered(self) -> bool:
        """Whether an answer has begun."""
        return self._status != 0

    def refusal(self) -> Problem | None:
        """Why this request is not even looked at."""
        if self._encoding and self._encoding.lower() != b"identity":
            return Problem("unsupported_encoding", "send the body as it is, without Content-Encoding")
        if self._length and (not self._length.isdigit() or int(self._length[:18]) > self._limit):
            return self._too_large()
        return None

    async def receive(self) -> Message:
        """The next piece of the request, counted: a length need not be told, nor true."""
        message = await self._receive()
        self._read += len(message.get("body", b""))
        self._more = message.get("more_body", False)
        if self._read > self._limit:
            raise self._too_large()
        return message

    async def send(self, message: Message) -> None:
        """The next piece of the answer. A connection whose request does not end is closed after it."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            if self._more:
                await self._drain()
            closing = [(b"connection", b"close")] if self._more else []
            message["headers"] = [*message.get("headers", ()), *self._own, *closing]
        await self._send(message)

    async def _drain(self) -> None:
        """Let a client that is not far over send the rest: most read our answer only then."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                while self._more and self._read < DRAIN_BYTES and not self._expects:
                    with contextlib.suppress(Problem):
                        await self.receive()

    def tell(self) -> None:
        """One line: no query, no body and no header gets into it, and of the path what we named ourselves."""
        level = logging.DEBUG if self._scope.get("callsheet.quiet") else logging.INFO
        if not log.isEnabledFor(level):
            return
        scope, took_ms = self._scope, (time.perf_counter() - self._begun) * 1000
        fields: dict[str, Any] = {
            "method": scope["method"] if scope["method"] in METHODS else "?",
            "path": path_of(scope),
            "status": self._status,
            "took_ms": round(took_ms, 1),
            "request_id": self.request_id,
            "key": scope.get("callsheet.key_id", ""),
        }
        log.log(level, "%s %s %d in %.1f ms", *list(fields.values())[:4], extra={"fields": fields})

    def _too_large(self) -> Problem:
        return Problem("body_too_large", f"a body may have {self._limit} bytes")
