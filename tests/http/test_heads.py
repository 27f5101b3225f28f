"""What uvicorn leaves open: endless heads, silent clients, pipelined requests."""

from __future__ import annotations

import asyncio
import socket

import pytest

from callsheet.http import connections
from tests.http.live import Live
from tests.http.raw import exchange, flood, head
from tests.running_worker import until


async def test_a_head_of_some_length_is_read(small: Live) -> None:
    response = await exchange(small, head(small, "GET /healthz", f"X-Long: {'x' * 30_000}"))
    assert response.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("start", [b"GET /healthz HTTP/1.1\r\nX-Long: ", b"GET /", b"GET /healthz HTTP/1.1\r\n"])
async def test_a_head_without_an_end_is_refused(small: Live, start: bytes) -> None:
    piece = b"x" * 1000 if not start.endswith(b"1.1\r\n") else b"X-Many: x\r\n" * 100
    response, sent_count = await flood(small, start, piece)
    assert response == b"" or response.startswith((b"HTTP/1.1 431", b"HTTP/1.1 400"))
    assert sent_count < 8 * 1024 * 1024  # what the kernel takes is not ours
    await until(lambda: len(small.server.server_state.connections) == 0)


async def test_large_bodies_behind_one_another_are_no_heads(small: Live) -> None:
    body = b'{"task":"chat","payload":{"a":"' + b"x" * 150_000 + b'"}}'
    for _ in range(5):
        answer = await small.client.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 202


async def test_each_request_of_a_connection_has_a_head_of_its_own(small: Live) -> None:
    reader, writer = await asyncio.open_connection(*small.server.address)
    text = head(small, "GET /healthz", f"X-Long: {'x' * 40_000}")
    await until(lambda: small.server.server_state.connections)
    (connection,) = small.server.server_state.connections
    assert isinstance(connection, connections.BoundedProtocol)
    for _ in range(4):
        writer.write(text[:20])
        await until(lambda: connection._in_head)
        writer.write(text[20:-10])
        await until(lambda: connection._head_bytes > 30_000)
        writer.write(text[-10:])
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200")
    writer.close()


@pytest.mark.parametrize("message", [b"", b"GET /hea", b"POST /v1/jobs HTTP/1.1\r\nHost"])
async def test_a_client_that_says_too_little_is_let_go(
    small: Live, monkeypatch: pytest.MonkeyPatch, message: bytes
) -> None:
    for before in (b"", head(small, "GET /healthz")):  # also on a connection that was used before
        monkeypatch.setattr(connections, "HEAD_S", 3600.0 if before else 0.1)
        reader, writer = await asyncio.open_connection(*small.server.address)
        if before:
            writer.write(before)
            await reader.readuntil(b"}")
            if not message:
                continue  # a connection that waits for the next request is kept alive by its own rule
        monkeypatch.setattr(connections, "HEAD_S", 0.1)
        writer.write(message)
        assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()
    await until(lambda: len(small.server.server_state.connections) <= 1)


async def test_a_stream_is_not_let_go_as_a_client_that_says_nothing(small: Live) -> None:
    """After its head arrived no timeout applies."""
    job_id = await small.job()
    async with small.client.stream("GET", f"/v1/jobs/{job_id}/events") as answer:
        lines = answer.aiter_lines()
        await anext(lines)
        for connection in small.server.server_state.connections:
            assert isinstance(connection, connections.BoundedProtocol)
            assert connection._late is None
        await small.client.post(f"/v1/jobs/{job_id}/cancel")
        assert "event: canceled" in [line async for line in lines]


async def test_a_stream_with_a_request_behind_it_ends_with_its_client(small: Live) -> None:
    job_id = await small.job()
    sock = socket.create_connection(small.server.address)
    sock.sendall(head(small, f"GET /v1/jobs/{job_id}/events") + head(small, "GET /healthz") * 2)
    await until(lambda: small.state.open)
    sock.close()
    await until(lambda: not small.state.open)
    assert small.state.streams.total == 0
