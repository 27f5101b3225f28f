"""The other end of a webhook: a small server that believes only what is signed."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Self

from callsheet.receiver import NotVerified, Receiver

MOST_BYTES = 1_000_000


class Inbox:
    """Verified events as they come; `until` waits for one."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.receiver: Receiver | None = None
        self.events: list[dict[str, Any]] = []
        self.refused = 0
        self._came = asyncio.Event()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}/hook"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()

    async def until(self, job_id: str, status: str) -> dict[str, Any]:
        """The event that tells of a job's status."""
        while True:
            for event in self.events:
                if event.get("job_id") == job_id and event.get("status") == status:
                    return event
            self._came.clear()
            await self._came.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            lines = [line.partition(":") for line in head.split("\r\n")[1:] if line]
            headers = {name.strip().lower(): value.strip() for name, _, value in lines}
            body = await reader.readexactly(min(MOST_BYTES, int(headers.get("content-length", "0"))))
            status = self._take(headers, body)
            writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
            await writer.drain()
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    def _take(self, headers: dict[str, str], body: bytes) -> str:
        if self.receiver is None:
            return "503 Service Unavailable"
        try:
            event = self.receiver.verify(headers, body)
        except NotVerified:
            self.refused += 1
            return "401 Unauthorized"
        with self.receiver.once(event.event_id) as first:
            if first:
                self.events.append(event.body)
                self._came.set()
        return "204 No Content"
