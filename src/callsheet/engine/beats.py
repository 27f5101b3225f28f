"""How long the worker of a job may stay silent after a cancellation request: two heartbeats.

A worker of the control plane sends heartbeats as often as its claims say, however long its lease is; any other worker
sends three per lease.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from callsheet.kernel.workers import BEATS_OF_SILENCE, silence_of

from .begun import is_remote

if TYPE_CHECKING:
    from callsheet.kernel.job import Job

REMOTE_BEAT_S = 4.0  # the contract asks for no heartbeat at once: two fit into the lease of an unconfirmed claim


def silence_ms_of(job: Job) -> int | None:
    """Return two heartbeats of the job's worker in milliseconds; None without a worker or lease of ours.

    If cancellation was requested before, the lease has that length already and its present length is returned.
    """
    if job.worker_id is None or job.lease_expires_at is None or job.heartbeat_at is None:
        return None
    lease_ms = job.lease_expires_at - job.heartbeat_at
    if job.cancel_requested_at is not None:
        return lease_ms
    return min(lease_ms, remote_silence_ms(REMOTE_BEAT_S)) if is_remote(job) else silence_of(lease_ms)


def remote_silence_ms(beat_s: float) -> int:
    """Return two heartbeats in milliseconds, for a worker with this heartbeat interval."""
    return round(beat_s * BEATS_OF_SILENCE * 1000)
