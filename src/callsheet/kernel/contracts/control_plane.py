"""The control plane: the contract of remote workers."""

from __future__ import annotations

from callsheet.kernel.lifecycle import Lifecycle, pairs, words

CONTROL_PLANE = Lifecycle(
    name="control_plane",
    words=words("QUEUED", "RUNNING", "SUCCEEDED", "FAILED", "DLQ", "CANCELED"),
    moves=pairs("""
        QUEUED > RUNNING | CANCELED
        RUNNING > SUCCEEDED | FAILED | DLQ | CANCELED | QUEUED
        FAILED | DLQ > QUEUED
    """),
    resumable=True,
    any_task=True,
    unregistered=True,
)
