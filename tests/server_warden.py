"""Runs one server for a test process, and ends it and its files when that process ends, even by SIGKILL.

It runs as a separate program (`python -I -S server_warden.py SPEC`), fed by a pipe: each line asks it to start the
server, end of file means the test process is done or dead. It answers `started PID` and `exited CODE`. What
CALLSHEET_TEST_SERVER_ENV holds as JSON is added to the environment of the server, and of it alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import TypedDict


class Spec(TypedDict):
    """The command, and its account (None: as ourselves).

    `directory` belongs to the server and is deleted at the end, unless `kept`.
    """

    command: list[str]
    directory: str
    uid: int | None
    gid: int | None
    stop_signal: int
    kept: bool


def main() -> None:
    """Serve the pipe until it closes, then clean up."""
    spec: Spec = json.loads(sys.argv[1])
    server: subprocess.Popen[bytes] | None = None
    for _ in sys.stdin:
        server = _start(spec)
    if server is not None:
        _end(server, spec["stop_signal"])
    if not spec["kept"]:
        shutil.rmtree(spec["directory"], ignore_errors=True)


def _start(spec: Spec) -> subprocess.Popen[bytes]:
    with Path(spec["directory"], "log").open("ab") as log:
        server = subprocess.Popen(
            spec["command"],
            cwd=spec["directory"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            user=spec["uid"],
            group=spec["gid"],
            extra_groups=None if spec["uid"] is None else [],
            env={**os.environ, **json.loads(os.environ.get("CALLSHEET_TEST_SERVER_ENV", "{}"))},
        )
    _say("started", server.pid)
    threading.Thread(target=lambda: _say("exited", server.wait()), daemon=True).start()
    return server


def _end(server: subprocess.Popen[bytes], stop_signal: int) -> None:
    server.send_signal(stop_signal)
    try:
        server.wait(timeout=10)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _say(word: str, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(1, f"{word} {number}\n".encode())


if __name__ == "__main__":
    main()
