"""A line that loses answers carries the request: the work is done, but the caller does not know."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.storm.faults import Weather
from tests.storm.history import FOLDER
from tests.storm.ledger import Ledger
from tests.storm.plan import Fault
from tests.storm.proxy import RESET, Lines


async def test_a_lost_answer_is_a_reset_after_the_request_was_heard() -> None:
    messages: list[bytes] = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            messages.append(line)
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
    assert messages == [b"one\n", b"two\n", b"three\n"]


async def test_a_server_that_resets_is_told_to_who_waits_for_it() -> None:
    """Otherwise a client waited its full patience, a minute, for a killed store's answer."""

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


async def test_an_answer_that_is_lost_in_a_hole_leaves_the_end_to_the_hole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the line was closed for ever: two half-hour storms were idle after nine minutes."""
    monkeypatch.setenv(FOLDER, str(tmp_path))
    with Lines() as lines:
        lines.open("a>b", "127.0.0.1", 9)
        stage: Any = SimpleNamespace(house=None, lines=lines)
        weather = Weather(stage, Ledger(tmp_path / "history.jsonl"))
        hole = asyncio.create_task(weather.make(Fault(0, "hole", "a>b", lasts_s=0.2)))
        while lines.lines["a>b"].mode != "hole" and not hole.done():
            await asyncio.sleep(0.005)
        await weather.make(Fault(0, "lost", "a>b"))
        await hole
        assert lines.lines["a>b"].mode == "open"
