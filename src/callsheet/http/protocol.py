"""uvicorn's protocol with the bounds that its parser lacks: how large the head of a request may be, and how slow.

It also counts the connections of strangers (`door.py`), says when a body is whole, and tells every request of a
connection that the client has gone, not the latest alone.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .door import CONNECTION, Door, Strangers
from .front import WHOLE
from .problems import Problem, answer

if TYPE_CHECKING:
    import asyncio

HEAD_BYTES = 64 * 1024
HEAD_S = 10.0
CROWDED_S = 1.0  # a connection too many that says nothing is closed after so long
TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class BoundedProtocol(HttpToolsProtocol):
    """One connection. `door` counts it until one of its requests has proved who sends it."""

    def __init__(self, *args: Any, door: Door | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._door = door or Door(Strangers())
        self._address: str | None = None  # of a stranger that the door counts
        self._refusal: Problem | None = None
        self._in_head = True
        self._head_bytes = 0
        self._late: asyncio.TimerHandle | None = None
        self._earlier: list[Any] = []  # requests before the latest whose answers have not ended

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client that connects and says nothing is let go, too."""
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        self._refusal = self._door.enter(self._address)
        self._late = self.loop.call_later(HEAD_S if self._refusal is None else CROWDED_S, transport.close)

    def admit(self) -> None:
        """Note that a request of this connection has proved who sends it."""
        if self._address is not None:
            self._door.leave(self._address)
            self._address = None

    def data_received(self, data: bytes) -> None:
        """A head may come in many pieces, but not in any number of them."""
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
        """A head begins."""
        super().on_message_begin()
        self.scope[CONNECTION] = self  # type: ignore[literal-required] # ours
        if not self._in_head:
            self._in_head, self._head_bytes = True, 0

    def on_headers_complete(self) -> None:
        """It has ended."""
        self._in_head = False
        self._in_time()
        before: Any = self.cycle  # None at first
        super().on_headers_complete()
        if before is not None and not before.response_complete:
            self._earlier = [cycle for cycle in (*self._earlier, before) if not cycle.response_complete]

    def on_message_complete(self) -> None:
        """All of a body is here: nothing has to be waited for."""
        self.scope[WHOLE] = True  # type: ignore[literal-required] # ours
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        self._in_time()
        self.admit()
        for cycle in self._earlier:
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def _refuse(self, problem: Problem) -> None:
        """Answer the first bytes of a connection too many, whatever they are, and close it."""
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
