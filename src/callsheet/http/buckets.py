"""Token buckets by name, and caches, that stay small and never forget a debt: only a bucket that is full again goes."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from itertools import islice
from typing import Generic, TypeVar

BURST_S = 2.0  # who was quiet may send so many seconds' worth at once
MOST_NAMES = 10_000
LOOK = 50
OTHERS = "\0others"

V = TypeVar("V")


class Buckets:
    """So many names at most. When all of them are in debt, those that are new share one bucket."""

    def __init__(self, most: int = MOST_NAMES) -> None:
        self._most = most
        # tokens, when they were counted, and the rate; the one that was asked for longest ago comes first
        self._of: OrderedDict[str, tuple[float, float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._of)

    def take(self, name: str, rate: float, now: float | None = None) -> int:
        """Take one token: 0 when there was one, else the seconds to wait."""
        at = time.monotonic() if now is None else now
        bucket = self._of.get(name)
        if bucket is None and not self._has_room(at):
            name = OTHERS
            bucket = self._of.get(name)
        tokens = most_of(rate) if bucket is None else filled(bucket[0], bucket[1], rate, at)
        if tokens < 1.0:
            return max(1, math.ceil((1.0 - tokens) / rate))
        self._of[name] = (tokens - 1.0, at, rate)
        self._of.move_to_end(name)
        return 0

    def _has_room(self, now: float) -> bool:
        """Make room by dropping a full bucket, which says nothing; those asked for longest ago are full first."""
        if len(self._of) < self._most:
            return True
        for name, (tokens, at, rate) in list(islice(self._of.items(), LOOK)):
            if name != OTHERS and filled(tokens, at, rate, now) >= most_of(rate):
                del self._of[name]
                return True
            self._of.move_to_end(name)  # the next look is at others
        return False


def filled(tokens: float, at: float, rate: float, now: float) -> float:
    """The tokens that a bucket holds now, by those that it held at some time."""
    return min(max(1.0, rate * BURST_S), tokens + max(0.0, now - at) * rate)


def most_of(rate: float) -> float:
    """What a bucket holds at most; one of a request in a minute holds that one."""
    return max(1.0, rate * BURST_S)


class Recent(Generic[V]):
    """The last so many values by name. What is forgotten must be looked up again, and nothing else."""

    def __init__(self, most: int = MOST_NAMES) -> None:
        self._most = most
        self._of: OrderedDict[str, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._of)

    def get(self, name: str) -> V | None:
        """The value; None when there is none, or not any more."""
        return self._of.get(name)

    def put(self, name: str, value: V) -> None:
        """Keep a value; the one that was put longest ago goes when there are too many."""
        self._of[name] = value
        self._of.move_to_end(name)
        if len(self._of) > self._most:
            self._of.popitem(last=False)

    def clear(self) -> None:
        """Forget all of them."""
        self._of.clear()
