"""Starting and ending a program that leads its own process group. How it is started is the caller's choice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import Process
from collections.abc import Awaitable
from typing import Any, Protocol

GRACE_S = 1.0
REAP_S = 5.0
READ_BYTES = 64 * 1024
TAIL_BYTES = 32 * 1024


class Start(Protocol):
    """How a program is started: as the leader of a session. A task passes `ctx.children.start`."""

    def __call__(self, program: str, *args: str, **options: Any) -> Awaitable[Process]:
        """`options` are those of asyncio.create_subprocess_exec."""
        ...


async def start_alone(program: str, *args: str, **options: Any) -> Process:
    """For callers outside of a task."""
    return await asyncio.create_subprocess_exec(program, *args, start_new_session=True, **options)


async def end(process: Process) -> None:
    """TERM, a second later KILL, for the whole group; nothing of it is left, even if this is cancelled."""
    try:
        for number, patience_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, REAP_S)):
            if process.returncode is not None:
                break
            _signal(process, number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await process.wait()
    finally:
        _signal(process, signal.SIGKILL)


async def tail_of(stream: asyncio.StreamReader) -> str:
    """The end of what it printed; a flood of it is read and forgotten."""
    last = b""
    while chunk := await stream.read(READ_BYTES):
        last = (last + chunk)[-TAIL_BYTES:]
    return last.decode("utf-8", "replace")


def _signal(process: Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
