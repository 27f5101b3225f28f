"""Processes of a storm: each is started, killed, frozen and started again under its name, and logs to a file."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import psutil

from tests.storm.history import FOLDER, note
from tests.storm.undertaker import MARK, marked

ROOT = Path(__file__).parents[2]
PATH = (ROOT / "src", ROOT, Path(__file__).parent / "stepped")
NET_S = 60.0
REST_S = 0.5


@dataclass
class Part:
    """One process by name. `ends` marks parts that end normally: these are not restarted."""

    name: str
    command: list[str]
    variables: dict[str, str] = field(default_factory=dict)
    ends: bool = False


class House:
    """Every process of one storm. `with House(folder)`: none is left behind at the end."""

    def __init__(self, folder: Path, variables: dict[str, str]) -> None:
        self.folder = folder
        self._variables = {**_clean(), "PYTHONPATH": os.pathsep.join(map(str, PATH)), **variables}
        self._variables |= {FOLDER: str(folder), MARK: str(folder)}
        self.parts: dict[str, Part] = {}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.lock = threading.RLock()
        (folder / "logs").mkdir(parents=True, exist_ok=True)

    def add(self, part: Part) -> None:
        """Start a part for the first time."""
        self.parts[part.name] = part
        self.start(part.name)

    def start(self, name: str) -> None:
        """Start a part that does not run."""
        part = self.parts[name]
        with self.lock, (self.folder / "logs" / f"{name}.log").open("ab") as log:
            if name not in self.running:
                self.running[name] = subprocess.Popen(
                    [sys.executable, "-m", *part.command],
                    env={**self._variables, "POD_NAME": name, **part.variables},
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )

    def kill(self, name: str) -> bool:
        """Kill -9 a part; False if it is not running."""
        with self.lock:
            process = self.running.pop(name, None)
        if process is None:
            return False
        process.kill()
        process.wait()
        return True

    def send(self, name: str, number: signal.Signals) -> bool:
        """Send a signal to a part; False if it is not running."""
        with self.lock:
            process = self.running.get(name)
            if process is None or process.poll() is not None:
                return False
            process.send_signal(number)
        return True

    def restart_dead(self) -> None:
        """Restart parts that exited, as a supervisor would: a server whose store is away may."""
        with self.lock:
            dead = [(name, p.returncode) for name, p in self.running.items() if p.poll() is not None]
            for name, code in dead:
                if not self.parts[name].ends or code != 0:
                    note("exited", part=name, code=code)
                    del self.running[name]
                    threading.Timer(REST_S, self._start_again, [name]).start()

    def _start_again(self, name: str) -> None:
        if not (self.folder / "closing").exists():
            self.start(name)

    def has_ended(self, name: str) -> bool:
        """Return whether a self-ending part has ended."""
        process = self.running.get(name)
        return process is not None and process.poll() == 0

    def stop(self, *names: str) -> dict[str, int]:
        """End parts by SIGTERM, and by SIGKILL where that does not help; their exit codes."""
        with self.lock:
            stopping = {name: self.running.pop(name) for name in names if name in self.running}
        for process in stopping.values():
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + NET_S
        for process in stopping.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline - time.monotonic()))
            process.kill()
        return {name: process.wait() for name, process in stopping.items()}

    def left(self) -> list[psutil.Process]:
        """Return the processes that carry the mark of this storm and are still there."""
        return marked(self.folder)

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.storm.undertaker", str(self.folder)]
        variables = {**_clean(), "PYTHONPATH": self._variables["PYTHONPATH"]}
        self._undertaker = subprocess.Popen(
            command, env=variables, cwd=ROOT, stdin=subprocess.PIPE, start_new_session=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        (self.folder / "closing").touch()
        for name in list(self.running):
            self.kill(name)
        assert self._undertaker.stdin is not None
        self._undertaker.stdin.close()
        self._undertaker.wait()


def _clean() -> dict[str, str]:
    """Return the environment without settings of the machine."""
    away = ("CALLSHEET_", "PG", "AWS_", "S3_", "OTEL_", "PYTEST")
    return {name: value for name, value in os.environ.items() if not name.startswith(away)}
