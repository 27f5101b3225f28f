from __future__ import annotations

import asyncio
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from callsheet.engine import Engine, Housekeeping
from callsheet.kernel.job import Job, Status
from callsheet.store.sqlite.store import SqliteStore

Spawn = Callable[..., "Worker"]


async def run_out(engine: Engine, held: Job, *, reap: bool = False) -> None:
    """Let the lease of a dead worker run out now, however long it is, and wait until its job has left it.

    So no test needs leases that are short, and that a living worker on a busy machine would lose as well. `reap` is for
    where no server and no worker runs that would take the job away.
    """
    async with asyncio.timeout(60):
        while (job := await engine.get(held.job_id)).status is Status.RUNNING and job.claim == held.claim:
            await engine.heartbeat([held.claim], lease_ms=1)
            if reap:
                await Housekeeping(engine).reap()
            await asyncio.sleep(0.05)


async def freeze(engine: Engine, pid: int) -> None:
    """Send SIGSTOP to a process, but never while it holds SQLite's write lock."""

    def stop(_: object = None) -> None:
        os.kill(pid, signal.SIGSTOP)
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        while any("T (stopped)" not in (thread / "status").read_text("utf-8") for thread in threads):
            pass

    if isinstance(engine.store, SqliteStore):
        await engine.store._writer.run(stop)  # work that its writer does is done with that lock held
    else:
        stop()


class Worker:
    """A worker process and its output so far."""

    def __init__(self, url: str, mode: str, name: str, lease_ms: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.worker", url, mode, name, str(lease_ms)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": "src:."},
        )
        self._told: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        assert self.read() == {"ready": name}

    def _listen(self) -> None:
        """Read its output continuously: a full pipe would stop it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("}\n"):
                self._told.put(json.loads(line))
        self._told.put(None)

    def read(self) -> dict[str, Any]:
        facts = self._told.get(timeout=60)
        assert facts is not None, f"the worker ended with {self.process.wait()}"
        return facts

    def write(self, line: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def stop(self) -> list[dict[str, Any]]:
        """End it in good order; return all unread output."""
        self.signal(signal.SIGTERM)
        return self._rest()

    def kill(self) -> list[dict[str, Any]]:
        """Kill -9; return the output so far."""
        self.process.kill()
        return self._rest()

    def _rest(self) -> list[dict[str, Any]]:
        self.process.wait(timeout=60)
        return list(iter(self._told.get, None))


@pytest.fixture
def spawn(engine: Engine, url: str) -> Iterator[Spawn]:
    workers: list[Worker] = []

    def start(mode: str, name: str, lease_ms: int = 30_000) -> Worker:
        workers.append(Worker(url, mode, name, lease_ms))
        return workers[-1]

    yield start
    for worker in workers:
        if worker.process.poll() is None:
            worker.process.kill()
            worker.process.wait()
        for pipe in (worker.process.stdin, worker.process.stdout):
            if pipe is not None:
                pipe.close()
