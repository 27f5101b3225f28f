"""Programs started by a task. Each program leads its own process group, which is killed when the attempt ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .run import Run


class Children:
    """The programs of one attempt."""

    def __init__(self, run: Run) -> None:
        self._run = run
        if run.children is None:
            run.children = set()

    async def start(self, program: str, *args: str, **options: Any) -> asyncio.subprocess.Process:
        """Start a program; `options` are those of asyncio.create_subprocess_exec."""
        process = await asyncio.create_subprocess_exec(program, *args, start_new_session=True, **options)
        self._add(process.pid)
        return process

    def popen(self, *command: str, **options: Any) -> subprocess.Popen[Any]:
        """Start a program from a plain function; `options` are those of subprocess.Popen."""
        process = subprocess.Popen(command, start_new_session=True, **options)  # noqa: S603 - the task's own program
        self._add(process.pid)
        return process

    def kill(self) -> None:
        """SIGKILL every remaining process group."""
        kill_groups(self._run)

    def _add(self, pid: int) -> None:
        assert self._run.children is not None  # noqa: S101 - made in __init__
        self._run.children.add(pid)
        if self._run.stop is not None:  # it was told to stop while the program was being started
            self.kill()


def kill_groups(run: Run) -> None:
    """Kill the process groups of a run, from any thread; missing groups are ignored."""
    for pid in list(run.children or ()):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
    if run.children:
        run.children.clear()
