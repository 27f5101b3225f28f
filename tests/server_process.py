"""One server process of a test run, under its warden: start, kill, start again, clean up."""

from __future__ import annotations

import json
import os
import pwd
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import psutil

from tests import binaries, server_warden

START_TIMEOUT_S = 30.0
GOODBYE_S = 3.0
POLL_S = 0.01
# Below the range from which Linux takes ports for outgoing connections (32768 and up), so that no client
# sits on a server's port while that server is being restarted.
PORTS = range(15_000, 32_000)


_LEFT: list[subprocess.Popen[bytes]] = []


class ServerFailed(Exception):
    """A server did not start; the message carries its log."""


class ServerProcess:
    """A server process with its own directory and port; `pid` is the server's, not the warden's."""

    def __init__(self, name: str, owner: pwd.struct_passwd | None, folder: Path | None = None) -> None:
        self._kept = folder is not None
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix=f"callsheet-{name}-", dir=binaries.shared_directory()))
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory = folder
        self.port = free_port()
        self.pid = 0
        self._warden: subprocess.Popen[bytes] | None = None
        self._ready: Callable[[], bool] = lambda: True
        self._owner = owner
        if owner:
            os.chown(self.directory, owner.pw_uid, owner.pw_gid)

    @classmethod
    @contextmanager
    def prepare(cls, name: str, owner: pwd.struct_passwd | None = None, kept: Path | None = None) -> Iterator[Self]:
        """A process of `owner` (or ours) to `run` and `launch`; a failing block removes all its files.

        A directory that is `kept` is never removed.
        """
        process = cls(name, owner, kept)
        try:
            yield process
        except BaseException:
            process.close()
            raise

    def run(self, *command: str | Path) -> None:
        """Run a preparing program to its end, in the server's directory and under its account."""
        owner = self._owner
        process = subprocess.run(
            command,
            cwd=self.directory,
            check=False,
            capture_output=True,
            text=True,
            user=owner.pw_uid if owner else None,
            group=owner.pw_gid if owner else None,
            extra_groups=[] if owner else None,
        )
        if process.returncode != 0:
            raise ServerFailed(f"{command[0]} failed:\n{process.stdout}{process.stderr}")

    def launch(self, command: Iterable[str | Path], *, stop_signal: signal.Signals, ready: Callable[[], bool]) -> None:
        """Hand `command` to a new warden and wait until the server is `ready`."""
        self._ready = ready
        self._warden = self._hire_warden([str(part) for part in command], stop_signal)
        self.start()

    def start(self) -> None:
        """Start or restart the server and wait until it accepts connections."""
        self._ask_to_start()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._ready():
            if self._speaks_within(POLL_S) or time.monotonic() > deadline:
                raise ServerFailed(f"the server did not come up; its log:\n{self._log()}")

    def end(self, number: signal.Signals) -> None:
        """Send a signal that ends the server, and wait until it has ended."""
        os.kill(self.pid, number)
        self._hear("exited")

    def accepts(self) -> bool:
        """Whether something listens on the port."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        """SIGKILL the server and every process below it."""
        below = psutil.Process(self.pid).children(recursive=True)
        self.end(signal.SIGKILL)
        for process in below:
            _kill_and_wait(process)

    def close(self) -> None:
        """End the server and remove its directory; closing twice is allowed."""
        if self._warden is None:
            if not self._kept:
                shutil.rmtree(self.directory, ignore_errors=True)
            return
        try:
            self._warden.communicate(timeout=GOODBYE_S)
        except subprocess.TimeoutExpired:
            _LEFT.append(self._warden)  # hundreds of databases are 100,000 files: it goes on without us
        self._warden = None

    def _hire_warden(self, command: list[str], stop_signal: signal.Signals) -> subprocess.Popen[bytes]:
        owner = self._owner
        spec = server_warden.Spec(
            command=command,
            directory=str(self.directory),
            uid=owner.pw_uid if owner else None,
            gid=owner.pw_gid if owner else None,
            stop_signal=stop_signal,
            kept=self._kept,
        )
        return subprocess.Popen(
            [sys.executable, "-I", "-S", server_warden.__file__, json.dumps(spec)],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the tests; the servers end after their teardown
        )

    def _ask_to_start(self) -> None:
        assert self._warden is not None
        assert self._warden.stdin is not None
        self._warden.stdin.write(b"\n")
        self.pid = self._hear("started")

    def _hear(self, word: str) -> int:
        assert self._warden is not None
        assert self._warden.stdout is not None
        messages, _, number = self._warden.stdout.readline().decode().partition(" ")
        if messages != word:
            raise ServerFailed(f"not {word} but {messages or 'gone'}; the server's log:\n{self._log()}")
        return int(number)

    def _speaks_within(self, seconds: float) -> bool:
        assert self._warden is not None
        assert self._warden.stdout is not None
        return bool(select.select([self._warden.stdout], [], [], seconds)[0])

    def _log(self) -> str:
        path = self.directory / "log"
        return path.read_text(errors="replace")[-4000:] if path.exists() else ""


def free_port() -> int:
    """A port that nobody listens at."""
    while True:
        port = random.choice(PORTS)
        if _can_bind(port):
            return port


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _kill_and_wait(process: psutil.Process) -> None:
    """A zombie counts as gone: in a container nobody may reap it."""
    try:
        process.kill()
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            time.sleep(POLL_S / 10)
    except psutil.NoSuchProcess:
        return
