"""Cortana Vision: the contract of video analysis."""

from __future__ import annotations

from callsheet.kernel.lifecycle import Lifecycle, pairs, words
from callsheet.kernel.retry import Backoff, RetryPolicy

BACKOFF = Backoff(table_ms=(60_000, 300_000, 900_000), low=0.8, high=1.2)

CORTANA = Lifecycle(
    name="cortana",
    words=words("queued", "processing", "done", "failed", "failed", "failed"),
    moves=pairs("""
        queued > processing
        processing > done | failed
        failed > queued
    """),
    passes=frozenset({"failed"}),
    policy="cortana",
    retry=RetryPolicy(
        max_attempts=4,  # the first run and three retries
        backoff=BACKOFF,
        throttled_backoff=BACKOFF,
        fatal=frozenset({"invalid_payload", "missing_object", "constraint_violation", "unauthorized", "forbidden"}),
    ),
    route="POST /videos or POST /clips",
    tasks=("video.transcode", "video.sample", "video.ocr", "video.segment_index", "video.clip_generate"),
    payload_checked=True,
)
