"""Options and results of sampling. Times are whole milliseconds from the start of the video."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Sampling(NamedTuple):
    """Sampling options. Frames more similar than `dedupe_threshold` count as one, unless the guard sees a change.

    The guard finds small changes that have come to rest, such as a caption, which a hash of the whole picture misses.
    """

    target_fps: float = 10.0
    dedupe_threshold: float = 0.95
    guard: bool = True
    guard_min_interval_s: float = 0.5


class Kept(NamedTuple):
    """One kept frame, upright and with square pixels. `pts` is `timestamp_ms` as an exact fraction of seconds.

    Its content first appeared at `since_ms`, earlier than `timestamp_ms` if the guard waited for a change to come to
    rest. At `until_ms` other content appeared, or decoding stopped.
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
    """The summary: the numbers of sampled and kept frames, and the undecodable ranges."""

    sampled: int
    kept: int
    duration_ms: int
    period_ms: int
    options: Sampling
    gaps: tuple[tuple[int, int], ...]
