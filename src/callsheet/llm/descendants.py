"""The processes below a process, by Linux's /proc. Elsewhere none are known, and only groups can be killed."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

KILL_ROUNDS = 50


def descendants(pid: int) -> list[int]:
    """All that run below a process, however deep."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            state, parent = entry.read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                parents.setdefault(int(parent), []).append(int(entry.parent.name))
    found, line = list[int](), [pid]
    while line:
        below = parents.pop(line.pop(), [])
        found += below
        line += below
    return found


def kill_below(pid: int) -> None:
    """Kill them, and those that they start meanwhile."""
    for _ in range(KILL_ROUNDS):
        below = descendants(pid)
        for child in below:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        if not below:
            return


def kill_session(leader: int) -> None:
    """Kill a leader that has not been waited for, its group, and what left the group.

    The group is stopped first, so that it starts nothing more, and the leader dies last: it takes in orphans, which
    would be out of sight without it.
    """
    _signal_group(leader, signal.SIGSTOP)
    kill_below(leader)
    _signal_group(leader, signal.SIGKILL)


def kill_group(leader: int) -> None:
    """Kill what is left of the group of a leader that has ended."""
    _signal_group(leader, signal.SIGKILL)


def _signal_group(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)
