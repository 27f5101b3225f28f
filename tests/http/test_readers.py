"""Slow, leaving or numerous readers: a reader delays no other reader, and its state is freed."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
from pathlib import Path

import httpx2
import pytest

from callsheet.http import server as server_module
from callsheet.http import sse
from callsheet.kernel.job import Job
from tests import stores
from tests.http.live import Live, frames, serving
from tests.http.raw import head
from tests.running_worker import until

DROPS = 2_000
BIG = '"' + "x" * 50_000 + '"'


async def stuck(live: Live, path: str, last: str = "") -> socket.socket:
    """A client that asks for a stream and never reads of it."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, live.server.address)
    await loop.sock_sendall(sock, head(live, f"GET {path}", *([f"Last-Event-ID: {last}"] if last else [])))
    return sock


async def received(sock: socket.socket) -> bytes:
    """Return all bytes received until the server hung up."""
    data, loop = b"", asyncio.get_running_loop()
    while more := await loop.sock_recv(sock, 1 << 20):
        data += more
    return data


async def write(live: Live, job: Job, count: int) -> None:
    for _ in range(count):
        await live.note(job, BIG)


async def test_a_reader_that_does_not_read_is_let_go_and_can_resume(
    small: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "WRITE_S", 2.0)
    job = await small.running()
    path = f"/v1/jobs/{job.job_id}/events"
    slow = [await stuck(small, path) for _ in range(5)]
    await until(lambda: len(small.state.open) == 5)
    async with small.client.stream("GET", path) as answer:
        stream, seqs = frames(answer), list[int]()
        await anext(stream)
        writer = asyncio.create_task(write(small, job, 200))  # 10 MB: more than the kernel takes for a reader
        while len(seqs) < 202:
            seqs.append((await anext(stream)).data["seq"])
        await writer
        assert seqs == list(range(1, 203))  # one that reads has noticed nothing
        await until(lambda: len(small.state.open) == 1)
        assert small.state.streams.total == 1
    for sock in slow:
        data = await received(sock)
        sock.close()
        whole = data[: data.rindex(b"\n\n")]
        last = whole[whole.rindex(b"\nid: ") + 5 :].split(b"\n")[0].decode()
        seen = whole.count(b"\nevent: ") - 1
        assert 0 < seen < 202
        assert last.endswith(f"-{seen}")
        async with small.client.stream("GET", path, headers={"Last-Event-ID": last}) as answer:
            stream = frames(answer)
            await anext(stream)
            assert (await anext(stream)).data["seq"] == seen + 1


async def test_a_reader_that_is_slow_holds_a_bounded_number_of_events(
    small: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await small.running()
    sock = await stuck(small, f"/v1/jobs/{job.job_id}/events")
    await until(lambda: small.state.open)
    (stream,) = small.state.open
    await write(small, job, 400)
    assert len(stream._watcher._events) <= 256
    connections = small.server.server_state.connections
    buffered = [connection.transport.get_write_buffer_size() for connection in connections]
    assert max(buffered) < 256 * 60_000
    sock.close()
    await until(lambda: not small.state.open)


def reset(sock: socket.socket) -> None:
    """Close by RST, as a crashed peer does."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def counts(live: Live) -> tuple[int, ...]:
    watch = live.engine._watch
    watchers = sum(map(len, watch._watchers.values()))
    return (live.state.streams.total, len(live.state.open), watchers, len(live.server.server_state.connections))


async def test_nothing_is_left_of_connections_that_were_dropped(small: Live) -> None:
    job_id = await small.job()
    paths = [f"/v1/jobs/{job_id}/events", f"/v1/events?jobs={job_id}", "/v1/events"]

    async def drop(n: int) -> None:
        sock = await stuck(small, paths[n % 3])
        if n % 4:
            await asyncio.get_running_loop().sock_recv(sock, 100)
        (sock.close if n % 2 else lambda: reset(sock))()

    async def wave(first: int, count: int) -> None:
        for start in range(first, first + count, 40):
            await asyncio.gather(*(drop(n) for n in range(start, start + 40)))
        await until(lambda: counts(small)[:3] == (0, 0, 0) and counts(small)[3] <= 1)
        await until(lambda: not small.server.server_state.tasks)
        gc.collect()

    await wave(0, 200)
    tasks, fds = len(asyncio.all_tasks()), len(list(Path("/proc/self/fd").iterdir()))
    rss = int(Path("/proc/self/statm").read_text().split()[1])
    await wave(200, DROPS)
    assert abs(len(asyncio.all_tasks()) - tasks) <= 1
    assert abs(len(list(Path("/proc/self/fd").iterdir())) - fds) <= 2
    assert (int(Path("/proc/self/statm").read_text().split()[1]) - rss) * 4096 < 16 * 1024 * 1024
    assert small.engine._watch._watchers == {}


async def test_a_stream_that_cannot_begin_is_not_counted(small: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    async with await small.key("a") as client:
        await small.job(client)
        monkeypatch.setattr(sse.EventStream, "_after_retry", lambda *_: 1 / 0)
        with pytest.raises(httpx2.RemoteProtocolError):  # its head had gone out: all that is left is to hang up
            await client.get("/v1/events")
    assert counts(small)[:3] == (0, 0, 0)


async def test_a_hundred_streams_end_within_two_seconds(url: str) -> None:
    async with serving(url) as live:
        jobs = [await live.job() for _ in range(10)]
        paths = [f"/v1/jobs/{jobs[n % 10]}/events" if n % 3 else "/v1/events" for n in range(100)]
        socks = [await stuck(live, path) for path in paths]
        await until(lambda: len(live.state.open) == 100)
        clock = asyncio.get_running_loop().time
        start = clock()
        live.server.should_exit = True
        answers = await asyncio.gather(*map(received, socks))
        assert clock() - start < server_module.SHUTDOWN_S + 0.5
        for answer in answers:
            assert answer.endswith(b"0\r\n\r\n")  # each was ended in good order
            assert b"event: hello" in answer
        for sock in socks:
            sock.close()


async def test_shutdown_does_not_wait_for_a_reader_that_does_not_read() -> None:
    async with serving(stores.fresh_url("sqlite")) as live:
        job = await live.running()
        sock = await stuck(live, f"/v1/jobs/{job.job_id}/events")
        await until(lambda: live.state.open)
        await write(live, job, 200)
        clock = asyncio.get_running_loop().time
        start = clock()
    assert clock() - start < server_module.SHUTDOWN_S + 1.5
    sock.close()
