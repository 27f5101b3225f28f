# mypy: ignore-errors
"""The scenarios with two workers, W1 and W2, each a process group of its own: kill, and the stopped one that comes back.

The workers' handler writes its starts and ends into a journal file; the supervisor (this process) reads it.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from common import Peer, family

UP_S = 30.0
SETTLE_S = 1.0


class Scene:
    """The journal and the worker processes of a fault scenario."""

    def __init__(self, url: str, folder: Path, sleep: float) -> None:
        self._url, self._journal, self._sleep = url, folder / "journal", sleep
        self._journal.touch()
        self._workers: dict[str, subprocess.Popen] = {}

    async def hire(self, name: str) -> bool:
        """Start a worker; return False if it does not start."""
        command = [sys.executable, sys.argv[0], "worker", "--url", self._url, "--journal", str(self._journal)]
        self._workers[name] = subprocess.Popen(  # noqa: ASYNC220 - the supervisor has nothing else to do
            [*command, "--name", name, "--sleep", str(self._sleep)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=None if os.environ.get("PEER_DEBUG") else subprocess.DEVNULL,
            start_new_session=True,
        )
        if await self.time_of("up", name, UP_S) is None:
            return False
        await asyncio.sleep(1.0)
        return True

    def send(self, name: str, number: signal.Signals) -> float:
        """Signal a worker and its descendants, other process groups included; return the time."""
        for pid in family(self._workers[name].pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return time.time()

    async def time_of(self, word: str, name: str, seconds: float) -> float | None:
        """Wait for the first journal entry of this kind; return its time, or None after `seconds`."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for line in self._journal.read_text().splitlines():
                if line.split()[:2] == [word, name]:
                    return float(line.split()[2])
            await asyncio.sleep(0.02)
        return None

    def close(self) -> None:
        for name, worker in self._workers.items():
            if worker.poll() is None:
                self.send(name, signal.SIGKILL)
            worker.wait()


@contextlib.contextmanager
def scene(url: str, sleep: float) -> Iterator[Scene]:
    with tempfile.TemporaryDirectory(prefix="callsheet-peer-") as folder:
        new_scene = Scene(url, Path(folder), sleep)
        try:
            yield new_scene
        finally:
            new_scene.close()


async def kill(peer: Peer, options: argparse.Namespace) -> dict:
    """Seconds from the kill -9 of W1, which runs the job, to the job's start on W2."""
    await peer.open()
    with scene(peer.url, sleep=600.0) as stage:
        if not await _w1_runs_it(stage, peer):
            return {"not_run": "W1 did not start the job"}
        if not await stage.hire("W2"):
            return {"not_run": "W2 did not come up"}
        killed_at = stage.send("W1", signal.SIGKILL)
        again = await stage.time_of("start", "W2", options.patience)
    return {"rerun_s": None if again is None else round(again - killed_at, 2), "patience_s": options.patience}


async def zombie(peer: Peer, options: argparse.Namespace) -> dict:
    """Stop W1 in the middle of the job, let W2 take it over, and wake W1.

    What does W1 change? `changed` is for a W1 that wakes after W2's end, `changed_running` for one that wakes while W2 still works.
    """
    await peer.open()
    after, why = await _woken(peer, options, after_the_end=True)
    if after in ("not recovered", "n/a"):
        return {"changed": after, "why": why, "changed_running": after, "why_running": why}
    during, why_during = await _woken(peer, options, after_the_end=False)
    return {"changed": after, "why": why, "changed_running": during, "why_running": why_during}


async def _woken(peer: Peer, options: argparse.Namespace, *, after_the_end: bool) -> tuple[str, str]:
    sleep = options.sleep if after_the_end else 3 * options.sleep
    with scene(peer.url, sleep) as stage:
        if not await _w1_runs_it(stage, peer):
            return "n/a", "W1 did not start the job"
        stage.send("W1", signal.SIGSTOP)
        await stage.hire("W2")
        second_start = await stage.time_of("start", "W2", options.patience)
        if second_start is None:
            return "not recovered", f"W2 did not get the job within {options.patience:.0f} s"
        if after_the_end and await stage.time_of("end", "W2", sleep + 30) is None:
            return "n/a", "W2 did not end the job"
        await asyncio.sleep(SETTLE_S)
        before = await peer.state()
        stage.send("W1", signal.SIGCONT)
        rest = sleep if after_the_end else second_start + sleep - time.time() - 3 * SETTLE_S
        first_end = await stage.time_of("end", "W1", rest)
        await asyncio.sleep(SETTLE_S)
        now = await peer.state()
        if not after_the_end and await stage.time_of("end", "W2", 0.05) is not None:
            return "n/a", "W2 had ended already"
    first_handler = "W1's handler ran to its end" if first_end else "W1's handler did not come to its end"
    return ("no" if before == now else "yes"), f"{first_handler}; {before} → {now}"


async def _w1_runs_it(stage: Scene, peer: Peer) -> bool:
    if not await stage.hire("W1"):
        return False
    await peer.one(0.0)
    return await stage.time_of("start", "W1", UP_S) is not None


async def work(peer: Peer) -> None:
    """The role `worker`."""
    await peer.open()
    peer.note("up")
    await peer.work()
