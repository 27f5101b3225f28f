"""The Redis gateway: the contract of language tasks, whose jobs other programs write and run in the store, too."""

from __future__ import annotations

from callsheet.kernel.lifecycle import Lifecycle, pairs, words

REDIS_GATEWAY = Lifecycle(
    name="redis_gateway",
    words=words("queued", "running", "done", "error", "error", "canceled"),
    moves=pairs("""
        queued > running | canceled
        running > done | error | canceled | queued
    """),
    route="POST /v1/jobs",
    tasks=("chat", "plan", "code", "tool", "rag", "embed"),
    resumable=True,
    is_shared=True,
    expires=True,
)
