"""Find and kill the processes below a process, by Linux's /proc. Other systems can only kill process groups."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

KILL_ROUNDS = 50


def descendants(pid: int) -> list[int]:
    """Return the ids of all child processes, at any depth."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            state, parent = entry.read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                parents.setdefault(int(parent), []).append(int(entry.parent.name))
    pids, line = list[int](), [pid]
    while line:
        below = parents.pop(line.pop(), [])
        pids += below
        line += below
    return pids


def kill_below(pid: int) -> None:
    """Kill all descendants, and repeat for processes that they start meanwhile."""
    for _ in range(KILL_ROUNDS):
        below = descendants(pid)
        for child in below:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        if not below:
            return


def kill_session(leader: int) -> None:
    """Kill a leader that has not been reaped, its process group, and processes that left the group.

    The group is stopped first, so that it starts no further process. The leader dies last: orphans become its
    children, and without it they could not be found.
    """
    _signal_group(leader, signal.SIGSTOP)
    kill_below(leader)
    _signal_group(leader, signal.SIGKILL)


def kill_group(leader: int) -> None:
    """Kill the remaining processes of a group whose leader has ended."""
    _signal_group(leader, signal.SIGKILL)


def _signal_group(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)
