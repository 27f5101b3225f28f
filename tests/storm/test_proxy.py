"""A line that loses answers carries the request: what was asked is done, and who asked does not know."""

from __future__ import annotations

import asyncio
import socket

import pytest

from tests.storm.proxy import RESET, Lines


async def test_a_lost_answer_is_a_reset_after_the_request_was_heard() -> None:
    heard: list[bytes] = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            heard.append(line)
            writer.write(line)
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        with Lines() as lines:
            port = lines.open("a>b", *server.sockets[0].getsockname()[:2])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"one\n")
            assert await reader.readline() == b"one\n"
            lines.set("a>b", "lost")
            writer.write(b"two\n")
            with pytest.raises(ConnectionResetError):
                await reader.readline()
            writer.transport.abort()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"three\n")
            assert await reader.readline() == b"three\n"
            writer.close()
    assert heard == [b"one\n", b"two\n", b"three\n"]


async def test_a_server_that_resets_is_told_to_who_waits_for_it() -> None:
    """Else a client waited for its own patience, a minute, for the answer of a store that had been killed."""

    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        raw: socket.socket = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        writer.transport.abort()

    async with await asyncio.start_server(reset, "127.0.0.1", 0) as server:
        with Lines() as lines:
            port = lines.open("a>b", *server.sockets[0].getsockname()[:2])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"one\n")
            async with asyncio.timeout(30):
                with pytest.raises(ConnectionResetError):
                    await reader.readline()
            writer.transport.abort()
