"""A clock that a storm steps, for Python processes: SQLite's store has no other clock than theirs.

This folder is put on the path of such processes, so that the interpreter imports this file before anything else.
STORM_CLOCK names the file that says by how many seconds the clock is wrong; it is read anew each tenth of a second.
This replaces libfaketime: libfaketime makes `time.sleep` of Python 3.11 raise EINVAL sometimes.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_FILE = Path(os.environ.get("STORM_CLOCK", "/nowhere/at/all"))
_LOOK_NS = 100_000_000
_time, _time_ns, _monotonic_ns = time.time, time.time_ns, time.monotonic_ns
_known = [0, 0]  # when it was read, and by how much the clock is wrong, in nanoseconds


def _off_ns() -> int:
    now = _monotonic_ns()
    if now - _known[0] > _LOOK_NS:
        _known[0] = now
        try:
            _known[1] = round(float(_FILE.read_text()) * 1e9)
        except (OSError, ValueError):
            _known[1] = 0
    return _known[1]


if _FILE.exists():
    time.time = lambda: _time() + _off_ns() / 1e9
    time.time_ns = lambda: _time_ns() + _off_ns()
