"""uvicorn's protocol with the bounds that its parser lacks: how large the head of a request may be, and how slow.

It also tells every request of a connection that the client has gone, not the latest alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    import asyncio

HEAD_BYTES = 64 * 1024
HEAD_S = 10.0
TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._in_head = True
        self._head_bytes = 0
        self._late: asyncio.TimerHandle | None = None
        self._earlier: list[Any] = []  # requests before the latest whose answers have not ended

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client that connects and says nothing is let go, too."""
        super().connection_made(transport)
        self._late = self.loop.call_later(HEAD_S, transport.close)

    def data_received(self, data: bytes) -> None:
        """A head may come in many pieces, but not in any number of them."""
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

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        self._in_time()
        for cycle in self._earlier:
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def _in_time(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
