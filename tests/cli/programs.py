"""Runs the command line as a separate program, with a small app."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TypeVar

import psutil

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60.0
POLL_S = 0.05
T = TypeVar("T")

SHOP = '''
import asyncio
import os
from pathlib import Path

from callsheet import Callsheet, Context

app = Callsheet()


@app.task
async def add(a: int, b: int = 1) -> int:
    return a + b


@app.task
async def gate(ctx: Context, path: str) -> str:
    """Ends when a file is there."""
    Path(f"{path}.part").write_text(str(os.getpid()))
    Path(f"{path}.part").rename(f"{path}.pid")  # whole, when it is there
    ctx.progress(40, "waiting at the gate")
    while not Path(path).exists():
        await asyncio.sleep(0.01)
    return "through"


@app.task(max_attempts=1)
async def broken() -> None:
    raise RuntimeError("it is broken")


@app.task(queue="other")
async def other() -> str:
    return "other"
'''


def eventually(ask: Callable[[], T], why: str = "") -> T:
    """What `ask` answers once that is something."""
    deadline = time.monotonic() + DEADLINE_S
    while not (answer := ask()):
        assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {why or ask}"
        time.sleep(POLL_S)
    return answer


class Program:
    """`callsheet …` in a folder; a thread reads its stderr all the time."""

    def __init__(self, folder: Path, *words: str, variables: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "callsheet.cli", *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1", **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said: list[str] = []
        self.printed: list[str] = []
        pipes = ((self.process.stderr, self.said), (self.process.stdout, self.printed))
        self._readers = [threading.Thread(target=self._read, args=pipe, daemon=True) for pipe in pipes]
        for reader in self._readers:
            reader.start()

    def _read(self, pipe: IO[str], lines: list[str]) -> None:
        lines.extend(line.rstrip("\n") for line in pipe)

    def hear(self, words: str, times: int = 1) -> None:
        """Wait until a text appears this often in the output."""

        def heard() -> bool:
            count = sum(words in line for line in self.said)
            assert count >= times or self.process.poll() is None, f"it ended: {self.said}"
            return count >= times

        eventually(heard, f"{words!r} in {self.said}")

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def children(self) -> list[psutil.Process]:
        """Its own child processes, the oldest first."""
        with contextlib.suppress(psutil.NoSuchProcess):
            result = psutil.Process(self.process.pid).children()
            return sorted((c for c in result if c.status() != psutil.STATUS_ZOMBIE), key=psutil.Process.create_time)
        return []

    def end(self) -> int:
        """Return the exit code after the process ended and all output was read."""
        code = self.process.wait(DEADLINE_S)
        for reader in self._readers:
            reader.join(DEADLINE_S)
        return code

    def clear_away(self) -> None:
        children = self.children()
        self.process.kill()
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        self.end()
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()
