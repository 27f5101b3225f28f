"""The supervisor of worker processes: starts them, passes stops on, starts again what died or whose files changed.

Children are new programs with this one's command line, not forks. Each is in a process group of its own, so that a
Ctrl-C in the terminal reaches it once: through here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from callsheet.net.backoff import doubled
from callsheet.store.tasks import end

from .failures import DRAINED, WRONG_INPUT
from .parent import Place

log = logging.getLogger("callsheet.supervisor")
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 10.0
SETTLE_MS = 300


class _Child:
    """A worker process. `stops` is how often it was told to stop: once drains, twice is hard."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.stops = 0

    def stop(self, times: int) -> None:
        """Tell it until it was told so often. SIGTERM serves for SIGINT too: both mean the same to a worker."""
        while self.stops < times:
            self.stops += 1
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGTERM)


class _End(NamedTuple):
    """How a child ended. `told`: it was asked to."""

    code: int
    lived_s: float
    told: bool


class Supervisor:
    """Keeps `count` workers running until it is told to stop, or with `burst` until they have nothing left to do.

    `_news` is set when files have changed, and then replaced: who began before sees it, who begins after waits anew.
    """

    def __init__(self, count: int, *, burst: bool = False, reload: bool = False) -> None:
        self._count = count
        self._burst = burst
        self._reload = reload
        self._children: dict[int, _Child] = {}
        self._stops = 0
        self._worst = 0
        self._news = asyncio.Event()

    async def run(self) -> int:
        """Until all have ended; the exit code."""
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
        """The first time drain, the second time stop hard."""
        self._stops += 1
        log.debug("stop %d is passed on to %d processes", self._stops, len(self._children))
        self._news.set()
        for child in self._children.values():
            child.stop(self._stops)

    async def _keep(self, index: int) -> None:
        """Run one child after another in this place."""
        pause_s = FIRST_PAUSE_S
        while not self._stops:
            news = self._news
            ended = await self._run_child(index)
            if self._is_over(index, ended):
                return
            if ended.told:
                continue
            pause_s = FIRST_PAUSE_S if ended.lived_s > LONGEST_PAUSE_S else pause_s
            self._warn(index, ended.code, pause_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if self._reload else pause_s):
                    await news.wait()
            pause_s = doubled(pause_s, FIRST_PAUSE_S, LONGEST_PAUSE_S)

    async def _run_child(self, index: int) -> _End:
        begun = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *sys.orig_argv[1:],
            env=Place(os.getpid(), index).as_environment(),
            stdin=subprocess.DEVNULL,
            process_group=0,
        )
        child = self._children[index] = _Child(process)
        log.debug("worker process %d has pid %d", index + 1, process.pid)
        child.stop(self._stops)
        code = await process.wait()
        del self._children[index]
        return _End(code, time.monotonic() - begun, child.stops > 0)

    def _is_over(self, index: int, ended: _End) -> bool:
        """True when this place is to stay empty."""
        if self._stops:
            if ended.code not in (0, DRAINED, -signal.SIGTERM):  # a child may be told before it can listen
                log.warning("worker process %d %s", index + 1, _how(ended.code))
                self._worst = self._worst or 1
            return True
        if self._burst and ended.code == 0:
            return not self._reload
        if ended.code == DRAINED:
            return True
        if ended.code == WRONG_INPUT and not self._reload:
            self._worst = WRONG_INPUT  # the same for all: another start would change nothing
            if index == 0:  # it is the one that says why, and must not be stopped before it has
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
        """Drain all children, and let each place start a new one."""
        self._news.set()
        self._news = asyncio.Event()
        for child in self._children.values():
            child.stop(1)


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    return f"was ended by {signal.Signals(-code).name}"
