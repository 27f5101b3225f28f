"""TCP lines that can be cut, fall silent or grow slow, all in one thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Coroutine
from typing import Any, Literal, Self

RESET = struct.pack("ii", 1, 0)  # linger for no time: what is closed is reset
Mode = Literal["open", "cut", "hole", "slow", "lost"]


class Line:
    """One listening port that leads to a target. A cut line refuses and resets, a hole carries nothing.

    `lost` counts open connections; each connection carries one more request and is reset instead of its answer.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        self.port = 0
        self.mode: Mode = "open"
        self.delay_s = 0.0
        self.resets = 0
        self.opened = asyncio.Event()
        self._ends: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = {}
        self._losing: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection until one of its ends closes, or the line is cut."""
        if self.mode == "cut":
            self._reset(writer)
            return
        self._ends[writer] = asyncio.current_task()
        there: asyncio.StreamWriter | None = None
        try:
            back, there = await asyncio.open_connection(*self.target)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._carry(reader, there))
                both.create_task(self._carry(back, writer))
        except* (OSError, asyncio.CancelledError):
            self._reset(writer)  # who waits for an answer hears that none will come
        self._ends.pop(writer, None)
        self._losing.discard(writer)
        for end in (writer, there):
            if end is not None:
                end.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(65_536):
            while self.mode == "hole":
                await self.opened.wait()
            if self.mode == "slow":
                await asyncio.sleep(self.delay_s)
            if writer in self._losing:
                raise ConnectionResetError
            writer.write(piece)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()

    def set(self, mode: Mode, delay_s: float = 0.0) -> None:
        """Change what happens on the line; a cut resets what is open now."""
        if mode == "lost":
            self._losing |= self._ends.keys()
            return
        self.mode, self.delay_s = mode, delay_s
        if mode == "hole":
            self.opened.clear()
        else:
            self.opened.set()
        if mode == "cut":
            for writer, task in list(self._ends.items()):
                self._reset(writer)
                if task is not None:
                    task.cancel()

    def _reset(self, writer: asyncio.StreamWriter) -> None:
        self.resets += 1
        raw: socket.socket | None = writer.get_extra_info("socket")
        if raw is not None:
            with contextlib.suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        writer.transport.abort()


class Lines:
    """`with Lines() as lines`: named lines, opened, changed and closed from any thread."""

    def __init__(self) -> None:
        self.lines: dict[str, Line] = {}
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._servers: list[asyncio.Server] = []
        self._thread = threading.Thread(target=self._run, name="storm-lines", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._until_stopped())

    async def _until_stopped(self) -> None:
        await self._stop.wait()
        for server in self._servers:
            server.close()

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def open(self, name: str, host: str, port: int) -> int:
        """Open a line to a target; returns its port on 127.0.0.1."""
        line = self.lines[name] = Line((host, port))

        async def start() -> None:
            server = await asyncio.start_server(line.serve, "127.0.0.1", 0)
            self._servers.append(server)
            line.port = server.sockets[0].getsockname()[1]

        self._do(start())
        return line.port

    def set(self, name: str, mode: Mode, delay_s: float = 0.0) -> None:
        """Change a line, or all lines to a place with `all>PLACE`."""
        chosen = [name] if name in self.lines else [known for known in self.lines if known.endswith(name[3:])]

        async def change() -> None:
            for one in chosen:
                self.lines[one].set(mode, delay_s)

        self._do(change())

    @property
    def resets(self) -> int:
        """Return the number of reset connections."""
        return sum(line.resets for line in self.lines.values())
