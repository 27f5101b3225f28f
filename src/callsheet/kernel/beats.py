"""Beats: how often a worker that holds a lease is to be heard of. Two of them without a word are silence.

A worker beats three times in a lease; a worker of the control plane (contract 003) as often as its claim tells it.
"""

from __future__ import annotations

BEATS_PER_LEASE = 3
BEATS_OF_SILENCE = 2


def silence_of(lease_ms: int) -> int:
    """Return two beats of a lease, in milliseconds."""
    return lease_ms * BEATS_OF_SILENCE // BEATS_PER_LEASE
