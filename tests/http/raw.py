"""Plain sockets, for what a well-behaved client would never send."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

from tests.http.live import Live


async def exchange(live: Live, *parts: bytes, close: bool = False) -> bytes:
    """Send raw bytes; return the answer until the server closes or pauses."""
    host, port = live.server.address
    reader, writer = await asyncio.open_connection(host, port)
    data = b""
    try:
        with contextlib.suppress(ConnectionError):
            for part in parts:
                writer.write(part)
                await writer.drain()
            if close:
                writer.write_eof()
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(60):
                while more := await reader.read(65536):
                    data += more
                    if whole(data):
                        break
    finally:
        writer.close()
    return data


async def flood(live: Live, start: bytes, piece: bytes, within_s: float = 60.0) -> tuple[bytes, int]:
    """Send a piece repeatedly until the server hangs up; return its answer and the number of bytes sent."""
    reader, writer = await asyncio.open_connection(*live.server.address)
    response, sent_count = b"", 0
    try:
        async with asyncio.timeout(within_s):
            with contextlib.suppress(ConnectionError):
                writer.write(start)
                while not writer.is_closing():
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
                    sent_count += len(piece)
            with contextlib.suppress(ConnectionError):
                response = await reader.read()
    finally:
        writer.close()
    return response, sent_count


def whole(got: bytes) -> bool:
    """Return whether the answer has its complete body."""
    head, end, body = got.partition(b"\r\n\r\n")
    lengths = [line[15:] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return bool(end and lengths) and len(body) >= int(lengths[0])


def head(live: Live, line: str, *headers: str) -> bytes:
    """The head of a request with the admin's key."""
    key = f"Authorization: {live.client.headers['authorization']}"
    return "\r\n".join((f"{line} HTTP/1.1", "Host: x", key, *headers, "", "")).encode("latin-1")


def parts_of(got: bytes) -> tuple[int, dict[str, str], Any]:
    """The status, headers and JSON body of an answer."""
    first, _, body = got.partition(b"\r\n\r\n")
    line, *headers = first.decode("latin-1").split("\r\n")
    header_values = {name.lower(): value for name, value in (text.split(": ", 1) for text in headers)}
    return int(line.split()[1]), header_values, json.loads(body)
