"""Counts of a job's waits since its last failure, stored in the job's error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .retry import WAITS_FOR
from .wire import decode

if TYPE_CHECKING:
    from .job import Job

COUNTS = ("waits", "waited_ms", "handed_on", "handed_on_ms")
MOST_COUNTED = 10**12


def details_of(job: Job) -> dict[str, int]:
    """Return how often and for how many milliseconds a job has waited, by kind of wait; empty after a failure."""
    error = decode(job.error) if job.error is not None else None
    details = error.get("details") if isinstance(error, dict) else None
    if not isinstance(details, dict) or WAITS_FOR not in details:
        return {}
    counts = {name: details.get(name) for name in COUNTS}  # another program may have written anything there
    return {name: min(count, MOST_COUNTED) for name, count in counts.items() if type(count) is int and count >= 0}
