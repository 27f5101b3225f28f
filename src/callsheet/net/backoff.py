"""Exponential pauses between tries. Retry delays of jobs are a policy in `kernel/retry.py`."""

from __future__ import annotations

import random
from typing import TypeVar

N = TypeVar("N", int, float)


def doubled(pause: N, first: N, longest: N) -> N:
    """Return the pause that follows `pause`: twice as long, at most `longest`; `first` after 0."""
    return min(longest, pause * 2) if pause else first


def pause_after(failures: int, first: float, longest: float, *, jitter: float = 0.0) -> float:
    """Return the pause after `failures` earlier failures: `first`, doubled for each of them, at most `longest`.

    `jitter` is the fraction of the pause that is random: 0 for a fixed pause, 1 for anything from 0 to the whole pause.
    """
    pause: float = min(longest, first * 2 ** min(failures, 32))
    return pause * random.uniform(1 - jitter, 1) if jitter else pause  # noqa: S311 - not a secret
