"""Which attempt the present code runs for. Tasks that a function starts and threads of `to_thread` know it, too.

A thread that a function starts by itself does not: hand it what it needs, such as `ctx.objects`. So that it gets
nothing else instead, `tasks_run_here` says whether code without an attempt may be a task's at all.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .run import Run

RUN: ContextVar[Run | None] = ContextVar("callsheet_run", default=None)
_lock = threading.Lock()
_workers = 0


def tasks_run_here() -> bool:
    """Return True while a worker runs in this process, whichever app it is of, and in a worker's child processes."""
    return _workers > 0


def count_worker(change: int) -> None:
    """Add to the number of workers in this process; a child process adds one and keeps it."""
    global _workers  # noqa: PLW0603 - a fact about the process
    with _lock:
        _workers += change


@contextmanager
def worker_here() -> Iterator[None]:
    """Count a worker of this process while it runs."""
    count_worker(1)
    try:
        yield
    finally:
        count_worker(-1)
