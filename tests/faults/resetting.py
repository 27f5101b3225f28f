"""A proxy that resets connections: after some bytes of an answer, as a crashed machine would."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field

RESET = struct.pack("ii", 1, 0)  # linger for no time: what is closed is reset


@dataclass
class ResettingProxy:
    """`limits` gives each connection the number of bytes after which it is reset; None lets it live."""

    target: tuple[str, int]
    limits: Iterator[int | None]
    port: int = 0
    resets: int = 0
    pipes: set[asyncio.Task[None]] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection until its limit."""
        limit = next(self.limits)
        if limit == 0:
            self._reset(writer)
            return
        with contextlib.suppress(OSError, asyncio.CancelledError):
            back, there = await asyncio.open_connection(*self.target)
            upwards = asyncio.create_task(self._carry(reader, there))
            self.pipes.add(upwards)
            upwards.add_done_callback(self.pipes.discard)
            pass_count = 0
            while piece := await back.read(65_536):
                if limit is not None and pass_count + len(piece) >= limit:
                    writer.write(piece[: limit - pass_count])
                    await writer.drain()
                    self._reset(writer)
                    break
                pass_count += len(piece)
                writer.write(piece)
                await writer.drain()
            upwards.cancel()
            there.close()
        writer.close()

    async def _carry(self, reader: asyncio.StreamReader, there: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(65_536):
                there.write(piece)
                await there.drain()

    def _reset(self, writer: asyncio.StreamWriter) -> None:
        self.resets += 1
        raw: socket.socket = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        writer.transport.abort()


@contextlib.contextmanager
def resetting(host: str, port: int, limits: Iterator[int | None]) -> Iterator[ResettingProxy]:
    """Run a proxy on a free port, in a thread with an event loop of its own."""
    proxy = ResettingProxy((host, port), limits)
    started_job, stop = threading.Event(), asyncio.Event()

    async def run() -> None:
        server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
        proxy.port = server.sockets[0].getsockname()[1]
        started_job.set()
        await stop.wait()
        server.close()

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=_run, args=(loop, run()))
    thread.start()
    try:
        assert started_job.wait(60)
        yield proxy
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


def _run(loop: asyncio.AbstractEventLoop, work: Coroutine[None, None, None]) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(work)
