"""A server with a constant answer, which shows the limit of the load program: `python -m bench.http.trivial PORT`."""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop

ANSWER = b"HTTP/1.1 202 Accepted\r\ncontent-length: 2\r\n\r\n{}"
HEALTHY = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


class Answers(asyncio.Protocol):
    """A client connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(ANSWER if data.startswith(b"POST") else HEALTHY)


async def serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Answers, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
