"""Start, watch and end a program that leads its own process group. Callers choose how to start it."""

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
    """The function that starts a program as a session leader. A task passes `ctx.children.start`."""

    def __call__(self, program: str, *args: str, **options: Any) -> Awaitable[Process]:
        """Start the program; `options` are those of asyncio.create_subprocess_exec."""
        ...


async def start_alone(program: str, *args: str, **options: Any) -> Process:
    """Start a program outside of a task."""
    return await asyncio.create_subprocess_exec(program, *args, start_new_session=True, **options)


async def end(process: Process) -> None:
    """Send TERM, a second later KILL, to the whole group. No process survives, even if this call is cancelled."""
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
    """Return the last 32 KiB of a stream; earlier output is discarded."""
    last = b""
    while chunk := await stream.read(READ_BYTES):
        last = (last + chunk)[-TAIL_BYTES:]
    return last.decode("utf-8", "replace")


def raise_if_stopped(is_stopped: Callable[[], bool]) -> None:
    """Raise MediaStopped if the caller requested a stop."""
    if is_stopped():
        raise MediaStopped("the caller stopped the work")


async def wait_for_end(
    process: Process, answers: Coroutine[Any, Any, object], is_stopped: Callable[[], bool]
) -> tuple[int, str]:
    """Return exit code and stderr tail after `answers` read all output. Raises its errors, or MediaStopped."""
    assert process.stderr is not None  # noqa: S101 - a pipe
    reads = asyncio.gather(answers, tail_of(process.stderr))
    stops = asyncio.create_task(_until_stopped(is_stopped))
    either: set[asyncio.Future[Any]] = {reads, stops}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if stops.done():
            stops.result()
        _, stderr_tail = await reads
        return await process.wait(), stderr_tail
    finally:
        for one in either:
            one.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*either, return_exceptions=True)


async def _until_stopped(is_stopped: Callable[[], bool]) -> None:
    while True:
        raise_if_stopped(is_stopped)
        await asyncio.sleep(LOOK_S)


def _signal(process: Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
