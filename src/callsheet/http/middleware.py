"""The outermost ASGI layer: request ids, allowed hosts, body limits, headers of every response, and the access log.

A body is handed out only after the request has proved its sender (`connections.admit`); a route that reads its body
earlier raises RuntimeError. OPEN_BODIES lists the routes whose body is the proof; their bodies must be small.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote_plus

from callsheet.engine.ids import new_id

from .body_pace import UPLOADS, Meter, Pace
from .connections import KEY_ID, WHOLE, ConnectionLimits
from .hosts import Hosts
from .problems import Problem, answer, path_of
from .proxies import NOBODY, Proxies

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger("callsheet.access")
ALWAYS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
DRAIN_BYTES = 8 * 1024 * 1024
DRAIN_S = 1.0
STREAM_PATH = "/objects/"  # bodies of this route are streamed to disk; their signed URLs limit the size
STREAMED_BYTES = 5 * 1024**4  # S3's limit for one object
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OPEN_BODIES = frozenset({"/internal/worker/enroll", "/studio/session"})  # these bodies contain the credentials
OPEN_BYTES = 8 * 1024
BATCHES = "/v1/jobs/batch"
BATCH_BYTES = 32 * 1024 * 1024


class EdgeRules(NamedTuple):
    """The limits for anonymous clients: pace of bodies, number of connections, allowed hosts and trusted proxies."""

    bodies: Pace = Pace()
    uploads: Pace = UPLOADS
    connections: ConnectionLimits = ConnectionLimits()
    hosts: Hosts = Hosts()
    proxies: Proxies = NOBODY


class RequestMiddleware:
    """Wraps an ASGI app. `secret` is the server's own API key, which must appear in no log."""

    def __init__(self, app: ASGIApp, body_bytes: int, edge: EdgeRules = EdgeRules(), secret: str = "") -> None:  # noqa: B008
        self._app = app
        self._hosts = edge.hosts
        self._secret = secret.encode()
        self._plain = _Body(body_bytes, edge.bodies)
        self._open = _Body(min(OPEN_BYTES, body_bytes), edge.bodies, is_open=True)
        self._stream_body = _Body(STREAMED_BYTES, edge.uploads)
        self._batch_body = _Body(max(body_bytes, BATCH_BYTES), edge.bodies)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send, self._body_of(scope), self._secret)
        try:
            problem = exchange.refusal(self._hosts)
            if problem is not None:
                await answer(problem, exchange.request_id)(scope, receive, exchange.send)
            else:
                await self._app(scope, exchange.receive, exchange.send)
        except Exception:
            if not exchange.is_answered:  # otherwise the error is already logged and answered
                raise
        finally:
            exchange.tell()

    def _body_of(self, scope: Scope) -> _Body:
        if scope["method"] == "PUT" and scope["path"].startswith(STREAM_PATH):
            return self._stream_body
        if scope["path"] == BATCHES:
            return self._batch_body
        return self._open if scope["path"] in OPEN_BODIES else self._plain


class _Body(NamedTuple):
    """The limits on a request's body. `is_open`: the route reads its body before the sender is known."""

    most_bytes: int
    pace: Pace
    is_open: bool = False


class _Exchange:
    """One request and its response, observed and limited by this layer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, body: _Body, secret: bytes) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._body, self._read, self._status = body, 0, 0
        self._meter: Meter | None = None
        self._started_s = time.perf_counter()
        client_id = self._length = self._encoding = self._expects = b""
        self._more = self._is_late = False
        self._hosts: list[bytes] = []
        for name, value in scope["headers"]:
            if name == b"x-request-id":
                client_id = value
            elif name == b"content-length":
                self._length, self._more = value, value != b"0"
            elif name == b"transfer-encoding":
                self._more = True
            elif name == b"content-encoding":
                self._encoding = value
            elif name == b"expect":
                self._expects = value
            elif name == b"host":
                self._hosts.append(value)
        self.request_id = id_of(client_id, scope["headers"], secret)
        self._own = [(b"x-request-id", self.request_id.encode()), *ALWAYS]
        scope["callsheet.request_id"] = self.request_id

    @property
    def is_answered(self) -> bool:
        """Whether the response headers were sent."""
        return self._status != 0

    def refusal(self, hosts: Hosts) -> Problem | None:
        """Return the Problem for a request that is refused unread by its host, headers or query; None lets it in."""
        if (problem := hosts.refusal(self._scope, self._hosts)) is not None:
            return problem
        if self._encoding and self._encoding.lower() != b"identity":
            return Problem("unsupported_encoding", "send the body as it is, without Content-Encoding")
        if self._length and (not self._length.isdigit() or int(self._length[:18]) > self._body.most_bytes):
            return self._too_large()
        if self._scope["path"].startswith(STREAM_PATH):
            return None  # the signature of its URL is over the whole query
        return query_refusal(self._scope["query_string"])

    async def receive(self) -> Message:
        """Return the next message of the request.

        Raises Problem if the body is late or too large, and RuntimeError if it is read before the sender is proven.
        """
        if self._more and not self._body.is_open and KEY_ID not in self._scope:
            raise RuntimeError(f"{path_of(self._scope)} reads its body before it knows who asks: call auth.check first")
        return await self._next()

    async def _next(self) -> Message:
        """Return the next message and count its bytes, since Content-Length may be missing or wrong."""
        if not self._more or WHOLE in self._scope:
            message = await self._receive()
        else:
            message = await self._in_time()
        self._read += len(message.get("body", b""))
        self._more = message.get("more_body", False)
        if self._read > self._body.most_bytes:
            raise self._too_large()
        return message

    async def _in_time(self) -> Message:
        self._meter = self._meter or Meter(self._body.pace)
        try:
            return await self._meter.next(self._receive, self._read)
        except Problem:
            self._is_late = True
            raise

    async def send(self, message: Message) -> None:
        """Send the next message of the response. After an incomplete request body, the connection is closed."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            if self._more and not self._is_late:
                await self._drain()
            closing = [(b"connection", b"close")] if self._more else []
            message["headers"] = [*message.get("headers", ()), *self._own, *closing]
        await self._send(message)

    async def _drain(self) -> None:
        """Read the rest of a slightly oversized body: most clients read the response only after sending the body."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                while self._more and self._read < DRAIN_BYTES and not (self._expects or self._is_late):
                    with contextlib.suppress(Problem):
                        await self._next()

    def tell(self) -> None:
        """Write the access log line. It holds no query, body or header, and shows the route's own path."""
        level = logging.DEBUG if self._scope.get("callsheet.quiet") else logging.INFO
        if not log.isEnabledFor(level):
            return
        scope, took_ms = self._scope, (time.perf_counter() - self._started_s) * 1000
        fields: dict[str, Any] = {
            "method": scope["method"] if scope["method"] in METHODS else "?",
            "path": path_of(scope),
            "status": self._status,
            "took_ms": round(took_ms, 1),
            "request_id": self.request_id,
            "key": scope.get(KEY_ID, ""),
        }
        log.log(level, "%s %s %d in %.1f ms", *list(fields.values())[:4], extra={"fields": fields})

    def _too_large(self) -> Problem:
        return Problem("body_too_large", f"a body may have {self._body.most_bytes} bytes")


REPEATABLE = frozenset({"status", "video_id"})  # the parameters that take several values
SHOWN_CHARS = 64


def query_refusal(query: bytes) -> Problem | None:
    """Return the Problem for a query that repeats a parameter, which would be ambiguous, or None for a valid query."""
    if query.count(b"=") < 2:  # noqa: PLR2004 - of one parameter there are no two values
        return None
    seen: set[str] = set()
    for part in query.split(b"&"):
        name = unquote_plus(part.partition(b"=")[0].decode("latin-1"))
        if name in seen and name not in REPEATABLE:
            return Problem("validation_failed", f"{name[:SHOWN_CHARS]}: give this parameter once; it was given twice")
        seen.add(name)
    return None


IS_ID = re.compile(rb"[A-Za-z0-9._:-]{1,64}").fullmatch
IS_SECRET = re.compile(
    rb"cs_[a-z]+_.*"  # keys, workers' tokens and enrolments
    rb"|whsec_.*"
    rb"|[A-Za-z0-9_-]{43}"  # 256 bits: sessions, tickets and lease tokens
    rb"|[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*"  # a JWT
    rb"|gh[a-z]_.*|sk-.*|xox[a-z]-.*|AKIA[A-Z0-9]{12,}",  # credentials of other services
    re.DOTALL,
).fullmatch
CREDENTIALS = frozenset({b"authorization", b"x-api-key", b"cookie", b"proxy-authorization"})
WORDS = re.compile(rb"[\s;,=]+")
LONG = 12


def id_of(client_id: bytes, headers: Iterable[tuple[bytes, bytes]], secret: bytes = b"") -> str:
    """Return the client's request id if it is safe to log and to store with jobs, else a new id.

    An id that looks like a key, token, session or JWT is rejected, and so is any part of the request's own credentials.
    `secret` is the server's own key.
    """
    if not client_id or not IS_ID(client_id) or IS_SECRET(client_id) or client_id == secret:
        return new_id()
    if any(_tells(client_id, value) for name, value in headers if name in CREDENTIALS):
        return new_id()
    return client_id.decode()


def _tells(client_id: bytes, credential: bytes) -> bool:
    """Return whether an id equals a credential or one of its words, or is a long substring of it."""
    return client_id in WORDS.split(credential) or (len(client_id) >= LONG and client_id in credential)
