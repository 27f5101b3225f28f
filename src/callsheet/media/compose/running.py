"""Run a sandboxed child process and read its answers line by line. No process survives the call."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from callsheet.media.errors import TookTooLong
from callsheet.media.ffmpeg import never_stopped
from callsheet.media.process import Start, end, raise_if_stopped, start_alone, wait_for_end
from callsheet.media.sandbox import GB, MB, Limits, Sight, environment, of_python, sandboxed_command

from . import errors
from .errors import ChildFailed, ComposeError

CHILD = Path(__file__).with_name("child.py")
LIMITS = Limits(
    wall_s=3600.0, cpu_s=3600, memory_bytes=4 * GB, file_bytes=2 * GB, open_files=128, free_bytes=64 * MB, nice=5
)
LINE_BYTES = 16 * MB
PACKAGES = ("PIL", "espeakng_loader")
KINDS = {kind.code: kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ComposeError)}


class Means(NamedTuple):
    """How to start programs, and the stop check. In a task: `Means(ctx.children.start, lambda: ctx.cancelled)`."""

    start: Start = start_alone
    is_stopped: Callable[[], bool] = never_stopped
    nice: int = LIMITS.nice


class Order(NamedTuple):
    """A child's task, and the files that it may access."""

    verb: str
    facts: dict[str, Any]
    sight: Sight


async def run_child(order: Order, means: Means, on_answer: Callable[[dict[str, Any]], object]) -> None:
    """Run a child to its end. Raises the child's ComposeError, ChildFailed if it died, MediaStopped."""
    raise_if_stopped(means.is_stopped)
    process = await start_child(order, means)
    try:
        async with asyncio.timeout(LIMITS.wall_s):
            code, stderr_tail = await wait_for_end(process, _answers(process, order, on_answer), means.is_stopped)
    except TimeoutError:
        raise TookTooLong(f"the work took longer than {LIMITS.wall_s:g} s") from None
    finally:
        await end(process)
    if code != 0:
        raise ChildFailed(f"the process for `{order.verb}` ended with {code}: {_last(stderr_tail)}")


async def start_child(order: Order, means: Means) -> Process:
    """Start a child, which waits for its order on stdin."""
    command = [sys.executable, "-I", "-S", "-B", str(CHILD), os.pathsep.join(map(str, _packages())), order.verb]
    sight = order.sight._replace(read=(*order.sight.read, *of_python(), *_packages()))
    line = sandboxed_command(command, sight, LIMITS._replace(nice=means.nice))
    home = order.sight.write[0] if order.sight.write else Path("/")
    return await means.start(
        line[0], *line[1:], stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd="/", env=environment(home), limit=LINE_BYTES
    )


async def _answers(process: Process, order: Order, on_answer: Callable[[dict[str, Any]], object]) -> None:
    assert process.stdin is not None  # noqa: S101 - all three are pipes
    assert process.stdout is not None  # noqa: S101
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the child died; its exit code shows it
        process.stdin.write(json.dumps(order.facts).encode())
        await process.stdin.drain()
        process.stdin.close()
    while line := await process.stdout.readline():
        answer = json.loads(line)
        if "error" in answer:
            raise KINDS.get(answer["error"], ChildFailed)(answer["text"])
        on_answer(answer)


def _last(stderr_tail: str) -> str:
    lines = [line for line in stderr_tail.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it printed no error"


@cache
def _packages() -> tuple[Path, ...]:
    """Return the folders of the child's imports: ours, Pillow, and the voice."""
    folders = [Path(__file__).parents[3]]
    for name in PACKAGES:
        spec = find_spec(name)
        if spec is not None and spec.origin:
            folders.append(Path(spec.origin).parents[1])
    return tuple(dict.fromkeys(folders))
