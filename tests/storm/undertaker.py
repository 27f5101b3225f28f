"""Ends what a storm has started when its conductor is gone, even by SIGKILL: `python -m tests.storm.undertaker FOLDER`.

A pipe's end signals that the conductor ended or died.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import psutil

MARK = "STORM_MARK"  # in the environment of a storm's processes alone, and of those that they start


def marked(folder: Path) -> list[psutil.Process]:
    """Return the processes that carry the mark of a storm's folder and live."""
    results = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            is_ours = process.pid != os.getpid() and process.environ().get(MARK) == str(folder)
            if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                results.append(process)
    return results


def end(folder: Path) -> None:
    """Kill the processes of a storm, also those that they start meanwhile."""
    while result := marked(folder):
        for process in result:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(result, timeout=10)


def main(folder: Path) -> None:
    """Wait for the conductor's end, then clean up."""
    sys.stdin.buffer.read()
    end(folder)
    disk = folder / "disk"
    if disk.is_mount():
        subprocess.run(["umount", "-l", disk], check=False, capture_output=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
