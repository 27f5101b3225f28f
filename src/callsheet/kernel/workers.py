"""A worker's id, and the length of its silence: a worker sends three heartbeats per lease; missing two is silence.

A worker of the control plane (contract 003) sends heartbeats at the interval that its claim response names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

BEATS_PER_LEASE = 3
BEATS_OF_SILENCE = 2


def silence_of(lease_ms: int) -> int:
    """Return the length of two heartbeats of this lease, in milliseconds."""
    return lease_ms * BEATS_OF_SILENCE // BEATS_PER_LEASE


def worker_identity(environ: Mapping[str, str], boot_uuid: str) -> str:
    """Return the worker's id: `POD_NAME`, else `HOSTNAME`, else `boot_uuid`, made once per process start."""
    return environ.get("POD_NAME", "").strip() or environ.get("HOSTNAME", "").strip() or boot_uuid


def name_of(worker_id: str) -> str:
    """Return the public part of a worker's id: the text after a `~` is the hash of its lease token."""
    return worker_id.partition("~")[0]
