"""Run a sandboxed child process and read its answers line by line. No process survives the call."""

from __future__ import annotations

import json
import os
import sys
from asyncio.subprocess import Process
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from callsheet.media.errors import TookTooLong
from callsheet.media.ffmpeg import never_stopped, raise_if_stopped, watch_for_stop
from callsheet.sandbox.command import GB, MB, Limits, Sight, environment, of_python
from callsheet.sandbox.processes import Bounds, Program, Start, import_folders, output_of, run_child, send, start_alone

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
    """A child's task and accessible files."""

    verb: str
    facts: dict[str, Any]
    sight: Sight


async def run_order(order: Order, means: Means, on_answer: Callable[[dict[str, Any]], object]) -> None:
    """Run a child to its end. Raises the child's ComposeError, ChildFailed if it died, MediaStopped."""
    raise_if_stopped(means.is_stopped)
    process = await start_child(order, means)
    bounds = Bounds(LIMITS.wall_s, TookTooLong(f"the work took longer than {LIMITS.wall_s:g} s"))
    outcome = await run_child(process, _answers(process, order, on_answer), bounds, watch_for_stop(means.is_stopped))
    if outcome.code != 0:
        raise ChildFailed(f"the process for `{order.verb}` ended with {outcome.code}: {_last(outcome.stderr_tail)}")


async def start_child(order: Order, means: Means) -> Process:
    """Start a child, which waits for its order on stdin."""
    folders = import_folders(*filter(find_spec, PACKAGES))
    command = [sys.executable, "-I", "-S", "-B", str(CHILD), os.pathsep.join(map(str, folders)), order.verb]
    sight = order.sight._replace(read=(*order.sight.read, *of_python(), *folders))
    home = order.sight.write[0] if order.sight.write else Path("/")
    program = Program(command, sight, LIMITS._replace(nice=means.nice), environment(home))
    return await program.start(means.start, line_bytes=LINE_BYTES)


async def _answers(process: Process, order: Order, on_answer: Callable[[dict[str, Any]], object]) -> None:
    await send(process, json.dumps(order.facts).encode(), is_last=True)
    while line := await output_of(process).readline():
        answer = json.loads(line)
        if "error" in answer:
            raise KINDS.get(answer["error"], ChildFailed)(answer["text"])
        on_answer(answer)


def _last(stderr_tail: str) -> str:
    lines = [line for line in stderr_tail.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it printed no error"
