"""Our own contract: the jobs that this program's users declare and enqueue."""

from __future__ import annotations

from callsheet.kernel.lifecycle import Lifecycle, pairs, words

CALLSHEET = Lifecycle(
    name="callsheet",
    words=words("queued", "running", "succeeded", "failed", "dead_letter", "canceled"),
    moves=pairs("""
        queued > running | canceled
        running > succeeded | failed | dead_letter | canceled | queued
        failed | dead_letter | canceled > queued
    """),
    resumable=True,
    any_task=True,
)
