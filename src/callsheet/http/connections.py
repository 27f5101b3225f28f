"""Limits on anonymous connections: connections on which no request has yet proved its sender by key or signed URL.

The connection class adds limits that uvicorn's parser lacks, on the size of a request's head and the time to send it.
It marks complete bodies, and reports a lost connection to all of its pending requests, while uvicorn reports the loss
only to the latest. Each process counts its own connections.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .problems import Problem, answer
from .proxies import NOBODY, Proxies

if TYPE_CHECKING:
    from starlette.types import Scope

CONNECTION = "callsheet.connection"  # in a scope: the connection that a request came on
WHOLE = "callsheet.whole"  # in a scope: the body is complete, so reading it needs no time limit
KEY_ID = "callsheet.key_id"  # in a scope: the caller's key id, once proved
RETRY_S = 5


class ConnectionLimits(NamedTuple):
    """The limits on anonymous connections: in total, and per address."""

    most: int = 1_000
    per_address: int = 300


class ConnectionCounter:
    """Counts anonymous connections. Trusted proxies, which forward many clients, have no limit per address."""

    def __init__(self, limits: ConnectionLimits, proxies: Proxies = NOBODY) -> None:
        self._limits, self._proxies = limits, proxies
        self._inside: Counter[str] = Counter()

    @property
    def connections(self) -> int:
        """The number of open anonymous connections."""
        return self._inside.total()

    def enter(self, address: str) -> Problem | None:
        """Count a new connection. Returns the Problem to answer with if a limit is reached, else None."""
        limits, problem = self._limits, None
        if self._inside[address] >= limits.per_address and not self._proxies.trust(address):
            problem = _crowd_problem("too_many_requests", "your address has")
        elif self._inside.total() >= limits.most:
            problem = _crowd_problem("too_many_connections", "this server has")
        self._inside[address] += 1
        return problem

    def leave(self, address: str) -> None:
        """Stop counting a connection that was closed or whose client proved its identity."""
        self._inside[address] -= 1
        if not self._inside[address]:
            del self._inside[address]


def _crowd_problem(code: str, who: str) -> Problem:
    detail = f"{who} too many open connections that have shown no key; close some, or come back in {RETRY_S} s"
    return Problem(code, detail, headers={"Retry-After": str(RETRY_S), "Connection": "close"})


def admit(scope: Scope, key_id: str) -> None:
    """Mark a request as sent by a proven client. The middleware hands out the body only after this call."""
    scope[KEY_ID] = key_id
    connection: Any = scope.get(CONNECTION)
    if connection is not None:
        connection.admit()


HEAD_BYTES = 64 * 1024
HEAD_S = 10.0
CROWDED_S = 1.0  # a silent surplus connection is closed after this time
TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class BoundedProtocol(HttpToolsProtocol):
    """One connection. `connections` counts it until one of its requests has proved its sender."""

    def __init__(self, *args: Any, connections: ConnectionCounter | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._counter = connections or ConnectionCounter(ConnectionLimits())
        self._address: str | None = None  # set while this connection counts as anonymous
        self._refusal: Problem | None = None
        self._in_head = True
        self._head_bytes = 0
        self._late: asyncio.TimerHandle | None = None
        self._earlier: list[Any] = []  # earlier requests with unfinished responses

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the new connection, and start the timer that closes a silent connection."""
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        self._refusal = self._counter.enter(self._address)
        self._late = self.loop.call_later(HEAD_S if self._refusal is None else CROWDED_S, transport.close)

    def admit(self) -> None:
        """Stop counting the connection as anonymous, because a request has proved its sender."""
        if self._address is not None:
            self._counter.leave(self._address)
            self._address = None

    def data_received(self, data: bytes) -> None:
        """Parse received bytes; close the connection if the request's head exceeds HEAD_BYTES or HEAD_S."""
        if self._refusal is not None:
            self._refuse(self._refusal)
            return
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if not self._in_head:
            return
        if self._late is None:
            self._late = self.loop.call_later(HEAD_S, self.transport.close)
        if self._head_bytes > HEAD_BYTES and not self.transport.is_closing():
            self.transport.write(TOO_LARGE)
            self.transport.close()

    def on_message_begin(self) -> None:
        """Start counting the bytes of a new request's head."""
        super().on_message_begin()
        self.scope[CONNECTION] = self  # type: ignore[literal-required] # ours
        if not self._in_head:
            self._in_head, self._head_bytes = True, 0

    def on_headers_complete(self) -> None:
        """Stop the timer of the head, and remember earlier requests whose responses are unfinished."""
        self._in_head = False
        self._in_time()
        before: Any = self.cycle  # None at first
        super().on_headers_complete()
        if before is not None and not before.response_complete:
            self._earlier = [cycle for cycle in (*self._earlier, before) if not cycle.response_complete]

    def on_message_complete(self) -> None:
        """Mark the request's body as complete, so that the app need not limit the time to read it."""
        self.scope[WHOLE] = True  # type: ignore[literal-required] # ours
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the lost connection to all unfinished requests, and stop counting the connection."""
        self._in_time()
        self.admit()
        for cycle in self._earlier:
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def _refuse(self, problem: Problem) -> None:
        """Send the refusal on a surplus connection, whatever bytes the client sent, and close the connection."""
        if self.transport.is_closing():
            return
        response = answer(problem)
        lines = [b"HTTP/1.1 %d %s" % (problem.status, HTTPStatus(problem.status).phrase.encode())]
        lines += [name + b": " + value for name, value in response.raw_headers]
        self.transport.write(b"\r\n".join([*lines, b"", bytes(response.body)]))
        self.transport.close()

    def _in_time(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
