# mypy: ignore-errors
# ruff: noqa: ANN001
"""For peers whose worker cannot run in the scenario's process: a second process runs the worker."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from common import LINE, Peer, family, peak_rss_mb


class OutsidePeer(Peer):
    """The worker runs this very driver in the role `worker` and counts in a file."""

    external = True

    def __init__(self, options) -> None:
        super().__init__(options)
        self._child = None
        self._folder = Path(tempfile.mkdtemp(prefix="callsheet-peer-")) if options.scenario != "worker" else Path()
        self._tally = self._folder / "tally"
        self._rss_mb = 0.0

    async def start(self) -> None:
        command = [sys.executable, sys.argv[0], "worker", "--url", self.url, "--tally", str(self._tally)]
        self._child = subprocess.Popen(  # noqa: ASYNC220 - it returns at once
            [*command, "--nap"] if self.nap else command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=None if os.environ.get("PEER_DEBUG") else subprocess.DEVNULL,
            start_new_session=True,
        )

    async def stop(self) -> None:
        self._rss_mb = max(self._rss_mb, sum(map(peak_rss_mb, self._family())))
        self._child.send_signal(signal.SIGTERM)
        for _ in range(100):
            if self._child.poll() is not None:
                return
            await asyncio.sleep(0.1)
        for pid in self._family():
            os.kill(pid, signal.SIGKILL)
        self._child.wait()

    def close(self) -> None:
        shutil.rmtree(self._folder)

    @property
    def hits(self) -> int:
        return self._tally.stat().st_size // LINE if self._tally.exists() else 0

    def waits(self) -> list[float]:
        waits_s = [float(line.split()[1]) for line in self._lines()]
        return [wait for wait in waits_s if wait > 0]

    def forget(self) -> None:
        self._tally.write_bytes(b"")

    def first_hit(self) -> float | None:
        lines = self._lines()
        return float(lines[0].split()[0]) if lines else None

    def cpu(self) -> float:
        fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in self._family()]
        return sum(int(field[11]) + int(field[12]) for field in fields) / os.sysconf("SC_CLK_TCK")

    def rss_mb(self) -> float:
        return self._rss_mb

    def _family(self) -> list[int]:
        return family(self._child.pid) if self._child else []

    def _lines(self) -> list[bytes]:
        return self._tally.read_bytes().splitlines()
