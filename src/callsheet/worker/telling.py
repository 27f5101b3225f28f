"""The job fields of log lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .current import RUN

if TYPE_CHECKING:
    import logging

    from callsheet.kernel.job import Job


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
        said = getattr(record, "fields", None)
        record.fields = {**about(run.job), **(said if isinstance(said, dict) else {})}
    return True
