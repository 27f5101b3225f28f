"""What is asked of sampling, and what comes of it. Times are whole milliseconds from the start of the video."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Sampling(NamedTuple):
    """How a video is sampled. Frames that are as alike as `dedupe_threshold` are one, unless the guard sees a change.

    The guard looks for small changes that have come to rest, such as a caption, which a hash of the whole misses.
    """

    target_fps: float = 10.0
    dedupe_threshold: float = 0.95
    guard: bool = True
    guard_min_interval_s: float = 0.5


class Kept(NamedTuple):
    """One frame that was kept, upright and with square pixels. `pts` is `timestamp_ms` as an exact fraction of seconds.

    What it shows was first seen at `since_ms`, which is before `timestamp_ms` when the guard waited until a change had
    come to rest; at `until_ms` something else was seen, or nothing more could be.
    """

    timestamp_ms: int
    since_ms: int
    until_ms: int
    pts: str
    phash: str
    width: int
    height: int
    path: Path


class Sampled(NamedTuple):
    """The whole: how many frames were looked at and kept, and the ranges in which none could be decoded."""

    sampled: int
    kept: int
    duration_ms: int
    period_ms: int
    options: Sampling
    gaps: tuple[tuple[int, int], ...]
