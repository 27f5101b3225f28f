"""Run a child process: start, talk over pipes, watch, and kill the whole process tree.

Every child is a session leader. Callers give the command, the conversation, and the errors of their field.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from .command import Limits, Sight, Walls, sandboxed_command

T = TypeVar("T")
GRACE_S = 1.0
REAP_S = 5.0
PIPES_S = 2.0  # the last output may still be in the pipes when the child has ended
READ_BYTES = 64 * 1024
TAIL_BYTES = 32 * 1024
KILL_ROUNDS = 50


class Start(Protocol):
    """The function that starts a program as a session leader. A task passes `ctx.children.start`."""

    def __call__(self, program: str, *args: str, **options: Any) -> Awaitable[Process]:
        """Start the program; `options` are those of asyncio.create_subprocess_exec."""
        ...


async def start_alone(program: str, *args: str, **options: Any) -> Process:
    """Start a program outside of a task."""
    return await asyncio.create_subprocess_exec(program, *args, start_new_session=True, **options)


class Program(NamedTuple):
    """A command line, and the sandbox, environment and folder in which it runs."""

    command: Sequence[str]
    sight: Sight
    limits: Limits
    env: Mapping[str, str]
    cwd: str = "/"
    walls: Walls | None = None

    async def start(self, start: Start, *, stdin: int = PIPE, line_bytes: int = READ_BYTES) -> Process:
        """Start the program in the sandbox. `line_bytes` is the longest line of its output that can be read."""
        line = sandboxed_command(self.command, self.sight, self.limits, self.walls)
        return await start(
            *line, stdin=stdin, stdout=PIPE, stderr=PIPE, cwd=self.cwd, env=dict(self.env), limit=line_bytes
        )


class Bounds(NamedTuple):
    """How long a child may run, and the errors of one that runs longer, or whose output stays open after its end.

    `grace_s` is the time between TERM and KILL; with 0, KILL comes at once and reaches processes that left the group.
    """

    wall_s: float
    too_long: Exception
    still_open: Exception | None = None
    grace_s: float = GRACE_S


class Outcome(NamedTuple, Generic[T]):
    """What `talk` returned, the child's exit code, and the tail of its stderr."""

    answer: T
    code: int
    stderr_tail: str


async def run_child(
    process: Process, talk: Coroutine[Any, Any, T], bounds: Bounds, watch: Coroutine[Any, Any, None] | None = None
) -> Outcome[T]:
    """Wait until a child has closed its pipes and ended. No process of it survives this call.

    `talk` reads all output. `watch` runs beside it and raises to stop the child; when `watch` returns because the
    child has ended, `talk` has two more seconds. Raises what `talk`, `watch` and `bounds` raise.
    """
    try:
        async with asyncio.timeout(bounds.wall_s) as clock:
            answer, stderr_tail = await _talk_and_watch(process, talk, watch, bounds.still_open)
            return Outcome(answer, await process.wait(), stderr_tail)
    except TimeoutError:
        if clock.expired():
            raise bounds.too_long from None
        raise  # an error of `talk`
    finally:
        await end(process, bounds.grace_s)


async def _talk_and_watch(
    process: Process,
    talk: Coroutine[Any, Any, T],
    watch: Coroutine[Any, Any, None] | None,
    still_open: Exception | None,
) -> tuple[T, str]:
    assert process.stderr is not None  # noqa: S101 - a pipe
    talking = asyncio.gather(talk, tail_of(process.stderr))
    watching = asyncio.create_task(watch) if watch is not None else asyncio.Future[None]()
    either: set[asyncio.Future[Any]] = {talking, watching}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            watching.result()
            await asyncio.wait({talking}, timeout=PIPES_S)
            if not talking.done() and still_open is not None:
                raise still_open
        answer, stderr_tail = await talking
        return answer, stderr_tail
    finally:
        for one in either:
            one.cancel()
        await asyncio.gather(*either, return_exceptions=True)


def output_of(process: Process) -> asyncio.StreamReader:
    """Return the stdout of a child whose stdout is a pipe."""
    assert process.stdout is not None  # noqa: S101
    return process.stdout


async def send(process: Process, data: bytes, *, is_last: bool = False) -> None:
    """Write to a child's stdin; `is_last` closes it. A dead child raises no error here: the exit code says more."""
    assert process.stdin is not None  # noqa: S101 - a pipe
    with contextlib.suppress(OSError):
        process.stdin.write(data)
        await process.stdin.drain()
        if is_last:
            process.stdin.close()


async def tail_of(stream: asyncio.StreamReader) -> str:
    """Return the last 32 KiB of a stream; earlier output is discarded."""
    last = b""
    while chunk := await stream.read(READ_BYTES):
        last = (last + chunk)[-TAIL_BYTES:]
    return last.decode("utf-8", "replace")


async def end(process: Process, grace_s: float = GRACE_S) -> None:
    """Send TERM to the group and, after `grace_s`, KILL to all. No process survives, even if this call is cancelled."""
    try:
        if process.returncode is None and grace_s:
            _signal_group(process.pid, signal.SIGTERM)
            await _wait(process, grace_s)
    finally:
        kill(process)
    if process.stdin is not None:
        process.stdin.close()
    await _wait(process, REAP_S)


async def _wait(process: Process, patience_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience_s):
            await process.wait()


def kill(process: Process) -> None:
    """Kill a child, its process group and, while it still runs, its descendants that left the group.

    The group is stopped first, so that it starts no further process. The child dies last: orphans that
    it adopted could not be found afterwards.
    """
    if process.returncode is None:
        _signal_group(process.pid, signal.SIGSTOP)
        kill_below(process.pid)
    _signal_group(process.pid, signal.SIGKILL)


def kill_below(pid: int) -> None:
    """Kill all descendants of a process, and repeat for those that they start meanwhile."""
    for _ in range(KILL_ROUNDS):
        below = descendants(pid)
        for child in below:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        if not below:
            return


def descendants(pid: int) -> list[int]:
    """Return the ids of all processes below a process, by Linux's /proc; elsewhere none."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            state, parent = entry.read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                parents.setdefault(int(parent), []).append(int(entry.parent.name))
    pids, line = list[int](), [pid]
    while line:
        below = parents.pop(line.pop(), [])
        pids += below
        line += below
    return pids


def _signal_group(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


@cache
def import_folders(*packages: str) -> tuple[Path, ...]:
    """Return the folders of Callsheet and of packages, for a child's import path. Raises ModuleNotFoundError."""
    folders = [Path(__file__).parents[2]]
    for name in packages:
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(f"no package {name}", name=name)
        folders.append(Path(spec.origin).parents[1])
    return tuple(dict.fromkeys(folders))
