"""The supervisor of worker processes: starts them, passes stop signals on, restarts them when they die or files change.

A child is a new program with this program's command line, not a fork. Each has its own process group, so that a Ctrl-C
in the terminal reaches it once, through the supervisor. The supervisor names itself in the child's environment: on
Linux the child asks for a SIGTERM at the supervisor's death, elsewhere it checks once a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import NamedTuple

from callsheet.net.backoff import doubled
from callsheet.store.tasks import end

from .errors import DRAINED, WRONG_INPUT

log = logging.getLogger("callsheet.supervisor")
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 10.0
SETTLE_MS = 300
VARIABLE = "CALLSHEET_INTERNAL_CHILD"
PR_SET_PDEATHSIG = 1
CHECK_PARENT_S = 1.0


class ChildSlot(NamedTuple):
    """A child's identity: its supervisor's process id and its own number, 0 for the first."""

    supervisor: int
    number: int

    def as_environment(self) -> dict[str, str]:
        """Return this process's environment with the slot added, for the child."""
        return {**os.environ, VARIABLE: f"{self.supervisor}:{self.number}"}


def take_slot(environ: MutableMapping[str, str]) -> ChildSlot | None:
    """Remove this process's slot from its environment, so that tasks' programs do not inherit it; None without one."""
    text = environ.pop(VARIABLE, None)
    if text is None:
        return None
    supervisor, _, number = text.partition(":")
    return ChildSlot(int(supervisor), int(number))


def end_with_parent(slot: ChildSlot) -> bool:
    """Ask Linux for SIGTERM when the supervisor dies; return False if it is dead already."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    return os.getppid() == slot.supervisor


async def await_parent_death(slot: ChildSlot, then: Callable[[], None]) -> None:
    """Call `then` once the supervisor is dead."""
    while os.getppid() == slot.supervisor:  # noqa: ASYNC110 - no event reports it
        await asyncio.sleep(CHECK_PARENT_S)
    then()


class _Child:
    """A worker process. `stops` counts the stop signals sent to it: one drains it, two stop it hard."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.stops = 0

    def stop(self, times: int) -> None:
        """Send SIGTERM until `times` signals were sent in all. SIGINT would mean the same to a worker."""
        while self.stops < times:
            self.stops += 1
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGTERM)


class _Exit(NamedTuple):
    """How a child ended. `on_request`: the supervisor had sent it a stop signal."""

    code: int
    lived_s: float
    on_request: bool


class Supervisor:
    """Keeps `count` workers running until it is stopped, or with `burst` until no job is left.

    `_changed` is set when files have changed, and then replaced by a new event for children that start later.
    """

    def __init__(self, count: int, *, burst: bool = False, reload: bool = False) -> None:
        self._count = count
        self._burst = burst
        self._reload = reload
        self._children: dict[int, _Child] = {}
        self._stops = 0
        self._worst = 0
        self._changed = asyncio.Event()

    async def run(self) -> int:
        """Run until all children have ended; return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        watch = [asyncio.create_task(self._watch_files())] if self._reload else []
        try:
            await asyncio.gather(*(self._keep(index) for index in range(self._count)))
        finally:
            await end(*watch)
        return self._worst

    def stop(self) -> None:
        """Stop all children: the first call drains them, the second stops them hard."""
        self._stops += 1
        log.debug("stop %d is passed on to %d processes", self._stops, len(self._children))
        self._changed.set()
        for child in self._children.values():
            child.stop(self._stops)

    async def _keep(self, index: int) -> None:
        """Run one child after another in one slot."""
        pause_s = FIRST_PAUSE_S
        while not self._stops:
            changed = self._changed
            ending = await self._run_child(index)
            if self._is_over(index, ending):
                return
            if ending.on_request:
                continue
            pause_s = FIRST_PAUSE_S if ending.lived_s > LONGEST_PAUSE_S else pause_s
            self._warn(index, ending.code, pause_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if self._reload else pause_s):
                    await changed.wait()
            pause_s = doubled(pause_s, FIRST_PAUSE_S, LONGEST_PAUSE_S)

    async def _run_child(self, index: int) -> _Exit:
        start = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *sys.orig_argv[1:],
            env=ChildSlot(os.getpid(), index).as_environment(),
            stdin=subprocess.DEVNULL,
            process_group=0,
        )
        child = self._children[index] = _Child(process)
        log.debug("worker process %d has pid %d", index + 1, process.pid)
        child.stop(self._stops)
        code = await process.wait()
        del self._children[index]
        return _Exit(code, time.monotonic() - start, child.stops > 0)

    def _is_over(self, index: int, ending: _Exit) -> bool:
        """Return whether no other child is started in this slot; sets the exit code."""
        if self._stops:
            if ending.code not in (0, DRAINED, -signal.SIGTERM):  # the signal may arrive before a child can handle it
                log.warning("worker process %d %s", index + 1, _how(ending.code))
                self._worst = self._worst or 1
            return True
        if self._burst and ending.code == 0:
            return not self._reload
        if ending.code == DRAINED:
            return True
        if ending.code == WRONG_INPUT and not self._reload:
            self._worst = WRONG_INPUT  # the same for all: another start would change nothing
            if index == 0:  # the first child prints the reason, and must not be stopped before that
                self.stop()
            return True
        return False

    def _warn(self, index: int, code: int, pause_s: float) -> None:
        when = "when a file changes" if self._reload else f"in {pause_s:g} s"
        log.warning("worker process %d %s; it starts again %s", index + 1, _how(code), when)

    async def _watch_files(self) -> None:
        from watchfiles import PythonFilter, awatch  # noqa: PLC0415 - an extra, looked for by the command

        here = Path.cwd()
        async for changes in awatch(here, watch_filter=PythonFilter(), debounce=SETTLE_MS):
            names = sorted({path.removeprefix(f"{here}{os.sep}") for _, path in changes})
            log.info("%s changed; the worker starts again", ", ".join(names[:3]))
            self._restart()

    def _restart(self) -> None:
        """Drain all children; each slot then starts a new one."""
        self._changed.set()
        self._changed = asyncio.Event()
        for child in self._children.values():
            child.stop(1)


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    return f"was ended by {signal.Signals(-code).name}"
