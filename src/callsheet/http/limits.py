"""What one client may ask of us: requests in a second, open streams, the size and depth of a body."""

from __future__ import annotations

import math
import time
from collections import Counter
from typing import NamedTuple

from .keys import Principal
from .problems import Problem

BODY_BYTES = 1024 * 1024
BURST_S = 2.0  # a key that was quiet may send so many seconds' worth at once
MOST_KEYS = 10_000


class Limits(NamedTuple):
    """The limits of one server."""

    body_bytes: int = BODY_BYTES
    rate: float = 1_000.0
    streams: int = 200
    queue_depth: int = 100_000
    watched_jobs: int = 200


class Rates:
    """A token bucket for each key. Admins are not counted: they are the operators."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._buckets: dict[str, tuple[float, float]] = {}

    def check(self, who: Principal, now: float | None = None) -> None:
        """Take one token; raises Problem `too_many_requests` with the seconds to wait."""
        if who.admin:
            return
        rate = who.rate or self._rate
        at = time.monotonic() if now is None else now
        most = max(1.0, rate * BURST_S)  # a key of one request in a minute may send that one
        tokens, since = self._buckets.get(who.key_id, (most, at))
        tokens = min(most, tokens + (at - since) * rate)
        if tokens < 1.0:
            wait_s = max(1, math.ceil((1.0 - tokens) / rate))
            raise Problem(
                "too_many_requests",
                f"this key may send {rate:g} requests in a second; come back in {wait_s} s",
                headers={"Retry-After": str(wait_s)},
            )
        if len(self._buckets) >= MOST_KEYS:
            self._buckets.clear()
        self._buckets[who.key_id] = (tokens - 1.0, at)


class Streams:
    """Open event streams by key."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """How many are open."""
        return self._open.total()

    def enter(self, who: Principal) -> None:
        """Count one more; raises Problem `too_many_streams`."""
        if not who.admin and self._open[who.key_id] >= self._limit:
            raise Problem(
                "too_many_streams",
                f"this key has {self._limit} streams open already; one can watch many jobs: /v1/events?jobs=…",
                headers={"Retry-After": "5"},
            )
        self._open[who.key_id] += 1

    def leave(self, who: Principal) -> None:
        """One less."""
        self._open[who.key_id] -= 1
        if not self._open[who.key_id]:
            del self._open[who.key_id]
