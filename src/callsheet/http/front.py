"""The outermost part of the app, pure ASGI: request ids, the size of bodies, headers that every answer has, the log."""

from __future__ import annotations

import logging
import re
import time
from typing import TYPE_CHECKING, Any

from callsheet.engine.ids import new_id

from .problems import Problem, answer

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger("callsheet.access")
REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,64}").fullmatch
ALWAYS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


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
        exchange = _Exchange(scope, receive, send, self._body_bytes)
        try:
            problem = exchange.refusal()
            if problem is not None:
                await answer(problem, exchange.request_id)(scope, receive, exchange.send)
            else:
                await self._app(scope, exchange.receive, exchange.send)
        finally:
            exchange.tell()


class _Exchange:
    """One request and its answer on their way through."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, body_bytes: int) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._limit, self._read, self._status = body_bytes, 0, 0
        self._begun = time.perf_counter()
        given = self._length = self._encoding = b""
        for name, value in scope["headers"]:
            if name == b"x-request-id":
                given = value
            elif name == b"content-length":
                self._length = value
            elif name == b"content-encoding":
                self._encoding = value
        self.request_id = given.decode() if REQUEST_ID(given) else new_id()
        self._own = [(b"x-request-id", self.request_id.encode()), *ALWAYS]
        scope["callsheet.request_id"] = self.request_id

    def refusal(self) -> Problem | None:
        """Why this request is not even looked at."""
        if self._encoding and self._encoding.lower() != b"identity":
            return Problem("unsupported_encoding", "send the body as it is, without Content-Encoding")
        if self._length and (not self._length.isdigit() or int(self._length) > self._limit):
            return self._too_large()
        return None

    async def receive(self) -> Message:
        """The next piece of the request, counted: a length need not be told, nor true."""
        message = await self._receive()
        if message["type"] == "http.request":
            self._read += len(message.get("body", b""))
            if self._read > self._limit:
                raise self._too_large()
        return message

    async def send(self, message: Message) -> None:
        """The next piece of the answer."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            message["headers"] = [*message.get("headers", ()), *self._own]
        await self._send(message)

    def tell(self) -> None:
        """One line: no query, no body and no header gets into it."""
        if not log.isEnabledFor(logging.INFO):
            return
        scope, took_ms = self._scope, (time.perf_counter() - self._begun) * 1000
        fields: dict[str, Any] = {
            "method": scope["method"],
            "path": scope["path"][:200],
            "status": self._status,
            "took_ms": round(took_ms, 1),
            "request_id": self.request_id,
            "key": scope.get("callsheet.key_id", ""),
        }
        log.info("%s %r %d in %.1f ms", *list(fields.values())[:4], extra={"fields": fields})

    def _too_large(self) -> Problem:
        return Problem("body_too_large", f"a body may have {self._limit} bytes", headers={"Connection": "close"})
