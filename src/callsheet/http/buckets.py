"""Token buckets and caches by name, bounded in size. Only a full token bucket is evicted, so no debt is forgotten."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from itertools import islice
from typing import Generic, TypeVar

BURST_S = 2.0  # an idle client may send this many seconds' worth of requests at once
MOST_NAMES = 10_000
LOOK = 50
OTHERS = "\0others"

V = TypeVar("V")


class Buckets:
    """Token buckets for at most `most` names. If all of them are in debt, new names share one bucket."""

    def __init__(self, most: int = MOST_NAMES) -> None:
        self._most = most
        # (tokens, time of that count, rate) by name, least recently used first
        self._of: OrderedDict[str, tuple[float, float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._of)

    def take(self, name: str, rate: float, now: float | None = None) -> int:
        """Take one token. Returns 0 if the bucket had a token, else the seconds to wait."""
        at = time.monotonic() if now is None else now
        bucket = self._of.get(name)
        if bucket is None and not self._has_room(at):
            name = OTHERS
            bucket = self._of.get(name)
        tokens = capacity_of(rate) if bucket is None else tokens_at(bucket[0], bucket[1], rate, at)
        if tokens < 1.0:
            return max(1, math.ceil((1.0 - tokens) / rate))
        self._of[name] = (tokens - 1.0, at, rate)
        self._of.move_to_end(name)
        return 0

    def _has_room(self, now: float) -> bool:
        """Return whether a new bucket fits, after evicting a full bucket if needed: a full bucket holds no information.

        The buckets that were used longest ago are examined first, since they are the likeliest to be full.
        """
        if len(self._of) < self._most:
            return True
        for name, (tokens, at, rate) in list(islice(self._of.items(), LOOK)):
            if name != OTHERS and tokens_at(tokens, at, rate, now) >= capacity_of(rate):
                del self._of[name]
                return True
            self._of.move_to_end(name)  # so that the next search examines other buckets
        return False


def tokens_at(tokens: float, at: float, rate: float, now: float) -> float:
    """Return the tokens in a bucket at `now`, computed from the `tokens` it held at `at`."""
    return min(max(1.0, rate * BURST_S), tokens + max(0.0, now - at) * rate)


def capacity_of(rate: float) -> float:
    """Return the capacity of a bucket: BURST_S seconds' worth of tokens, and at least one."""
    return max(1.0, rate * BURST_S)


class RecentCache(Generic[V]):
    """A cache of the `most` latest values by name. An evicted value only costs its caller another lookup."""

    def __init__(self, most: int = MOST_NAMES) -> None:
        self._most = most
        self._of: OrderedDict[str, tuple[float, V]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._of)

    def get(self, name: str, max_age_s: float = math.inf) -> V | None:
        """Return the cached value, or None if the cache has none under this name that is younger than `max_age_s`."""
        at, value = self._of.get(name, (-math.inf, None))
        return value if time.monotonic() - at < max_age_s else None

    def put(self, name: str, value: V) -> None:
        """Cache a value. Evicts the oldest value if the cache is full."""
        self._of[name] = (time.monotonic(), value)
        self._of.move_to_end(name)
        if len(self._of) > self._most:
            self._of.popitem(last=False)

    def clear(self) -> None:
        """Remove all values."""
        self._of.clear()
