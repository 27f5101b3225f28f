"""Starting, watching and ending a program that leads its own process group. How it is started is for callers to say."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from .errors import MediaStopped

GRACE_S = 1.0
REAP_S = 5.0
LOOK_S = 0.2
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


def heed(is_stopped: Callable[[], bool]) -> None:
    """Raise MediaStopped when the work is to stop."""
    if is_stopped():
        raise MediaStopped("the work was told to stop")


async def watched(
    process: Process, answers: Coroutine[Any, Any, object], is_stopped: Callable[[], bool]
) -> tuple[int, str]:
    """Its exit code and the end of its stderr, once `answers` has read all; raises what that does, and MediaStopped."""
    assert process.stderr is not None  # noqa: S101 - a pipe
    reads = asyncio.gather(answers, tail_of(process.stderr))
    stops = asyncio.create_task(_until_stopped(is_stopped))
    either: set[asyncio.Future[Any]] = {reads, stops}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if stops.done():
            stops.result()
        _, said = await reads
        return await process.wait(), said
    finally:
        for one in either:
            one.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*either, return_exceptions=True)


async def _until_stopped(is_stopped: Callable[[], bool]) -> None:
    while True:
        heed(is_stopped)
        await asyncio.sleep(LOOK_S)


def _signal(process: Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
