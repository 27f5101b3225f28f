"""Storm faults of the machine: a full disk, and a stepping clock."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

SIZE_MIB = 512
PIECE = bytes(1 << 20)


class Disk:
    """Where workspaces (and SQLite's file) are. A small file system, mounted where this account may mount.

    Elsewhere a marker file makes `tests.storm.tasks` behave as on a full disk.
    """

    def __init__(self, folder: Path, *, mounts: bool) -> None:
        self.root = folder / "disk"
        self.root.mkdir(mode=0o700)
        self.flag = folder / "disk_is_full"
        self.is_mounted = mounts and _mount(self.root)

    def fill(self) -> None:
        """Leave no byte of room."""
        if not self.is_mounted:
            self.flag.touch()
            return
        with contextlib.suppress(OSError), (self.root / "ballast").open("ab", buffering=0) as file:
            while True:
                file.write(PIECE)

    def empty(self) -> None:
        """Make room again."""
        self.flag.unlink(missing_ok=True)
        (self.root / "ballast").unlink(missing_ok=True)

    def close(self) -> None:
        """Take the file system away."""
        if self.is_mounted:
            subprocess.run(["umount", "-l", self.root], check=False, capture_output=True)

    def workspaces_left(self) -> list[str]:
        """Return the workspaces that nobody has removed."""
        roots = [path for path in self.root.glob("work-*") if path.is_dir()]
        return sorted(f"{root.name}/{entry.name}" for root in roots for entry in root.iterdir())


def _mount(root: Path) -> bool:
    if os.geteuid() != 0 or not sys.platform.startswith("linux"):
        return False
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m,mode=700", "tmpfs", str(root)]
    return (
        shutil.which("mount") is not None and subprocess.run(command, check=False, capture_output=True).returncode == 0
    )


class Clock:
    """The store's clock: a file holds its offset. The machine's own is never stepped.

    A server of the store runs under libfaketime. SQLite's clock is that of our processes: `stepped/sitecustomize.py`.
    """

    def __init__(self, folder: Path, library: Path | None) -> None:
        self._file = folder / "clock"
        self._library = library
        self._off_s = 0.0
        self._write()

    @property
    def of_processes(self) -> dict[str, str]:
        """The environment of Python processes whose clock this is."""
        return {"STORM_CLOCK": str(self._file)}

    @property
    def of_servers(self) -> dict[str, str]:
        """Return the environment for a server under this clock; empty without a library."""
        if self._library is None:
            return {}
        variables = {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }
        return {"CALLSHEET_TEST_SERVER_ENV": json.dumps(variables)}  # for the server alone: see tests/server_warden.py

    def step(self, by_s: float) -> None:
        """Step the clock; processes notice within a second."""
        self._off_s += by_s
        self._write()

    def _write(self) -> None:
        partial = self._file.with_suffix(".new")
        partial.write_text(f"{self._off_s:+.3f}\n")
        partial.chmod(0o644)
        partial.rename(self._file)
