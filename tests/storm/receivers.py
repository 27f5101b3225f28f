"""The receiver of webhooks: `python -m tests.storm.receivers PORT`. It records each request and its signature check.

It answers 503 while the file `deaf` exists. Otherwise one request in ten gets 503, by number, and another one in ten
gets no answer, which causes a retry. After `stop` every request gets 200.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import sys
from pathlib import Path

from callsheet.receiver import NotVerified, Receiver
from tests.outbox.sink import Got, _read
from tests.storm.history import FOLDER, note

REFUSED_EACH = 10
HUNG_UP = 599  # no answer was given


class Hook:
    """Takes requests and answers them."""

    def __init__(self, folder: Path) -> None:
        self._deaf, self._stop = folder / "deaf", folder / "stop"
        self._receiver = Receiver([(folder / "secret").read_text()])
        self._numbers = itertools.count(1)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            request = await _read(reader)
            turn = 1 if self._stop.exists() else next(self._numbers) % REFUSED_EACH
            refusal = self._deaf.exists() or turn == 0
            hangs_up = turn == REFUSED_EACH // 2
            self._note(request, HUNG_UP if hangs_up else 503 if refusal else 204)
            if hangs_up:
                writer.close()
                return
            status = b"503 Service Unavailable" if refusal else b"204 No Content"
            writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
        writer.close()

    def _note(self, request: Got, status: int) -> None:
        try:
            event, verified = self._receiver.verify(request.headers, request.body).body, True
        except NotVerified:
            event, verified = json.loads(request.body), False
        note(
            "received", event=request.headers.get("x-euterpe-event-id"), job=event.get("job_id"), status=status,
            verified=verified, body=request.body.decode(),
        )  # fmt: skip


async def main(port: int) -> None:
    """Serve until killed."""
    hook = Hook(Path(os.environ[FOLDER]))
    server = await asyncio.start_server(hook.serve, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
