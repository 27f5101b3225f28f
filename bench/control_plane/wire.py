"""The smallest client of the control plane: one keep-alive connection, JSON there and back."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Self


class Line:
    """A keep-alive connection to a server of the control plane."""

    def __init__(self, port: int, key: str) -> None:
        self._port, self._key = port, key

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def post(self, path: str, body: dict[str, Any]) -> Any:
        return await self._ask("POST", path, json.dumps(body).encode())

    async def get(self, path: str) -> Any:
        return await self._ask("GET", path, b"")

    async def _ask(self, method: str, path: str, data: bytes) -> Any:
        head = (
            f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{self._port}\r\nauthorization: Bearer {self._key}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
        )
        self._writer.write(head.encode() + data)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        at = answer.lower().index(b"content-length: ") + 16
        body = await self._reader.readexactly(int(answer[at : answer.index(b"\r", at)]))
        if not answer.startswith(b"HTTP/1.1 2"):
            raise RuntimeError(f"{path}: {answer.splitlines()[0].decode()} {body[:200]!r}")
        return json.loads(body)
