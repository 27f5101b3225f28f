"""Heartbeats: a worker sends three per lease; two missing heartbeats count as silence.

A worker of the control plane (contract 003) sends heartbeats at the interval that its claim response names.
"""

from __future__ import annotations

BEATS_PER_LEASE = 3
BEATS_OF_SILENCE = 2


def silence_of(lease_ms: int) -> int:
    """Return the length of two heartbeats of this lease, in milliseconds."""
    return lease_ms * BEATS_OF_SILENCE // BEATS_PER_LEASE
