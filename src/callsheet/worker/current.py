"""The current attempt, as a context variable; asyncio tasks and `to_thread` threads of a function inherit it.

A thread that a function starts directly has no current attempt: pass objects such as `ctx.objects` to that thread. Code
without an attempt may therefore still be a task's code; `tasks_run_here` tells whether this process runs tasks.

Log lines get the job's fields from here, too.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import logging

    from callsheet.kernel.job import Job

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


def about(job: Job) -> dict[str, Any]:
    """Return the fields of a log line about a job."""
    same = {"job_id": job.job_id, "task": job.kind, "queue": job.queue, "attempt": job.attempt_count}
    return {**same, "correlation_id": job.correlation_id}


def extra(job: Job, **more: object) -> dict[str, Any]:
    """Return the `extra` of a log call about a job."""
    return {"fields": {**about(job), **more}}


def name_the_job(record: logging.LogRecord) -> bool:
    """Add the running job's fields to a log record of any logger; fields that the record has already win.

    Use this function as a filter of a log handler; every record passes.
    """
    run = RUN.get()
    if run is not None:
        fields = getattr(record, "fields", None)
        record.fields = {**about(run.job), **(fields if isinstance(fields, dict) else {})}
    return True
