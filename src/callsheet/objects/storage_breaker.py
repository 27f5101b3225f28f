"""A breaker for each storage, shared by the whole process: one that does not answer is left alone for a while.

After five failures in a row every request fails at once, so that jobs do not sit in their slots until time-outs. When
the pause is over one request is let through; if it fails too, the pause is twice as long, up to a minute.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache

from .errors import ObjectsUnavailable

FAILURES = 5
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0


class StorageBreaker:
    """Counts failures in a row of one storage. `clock` gives seconds that never run backwards."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._pause_s = 0.0
        self._closed_until = 0.0
        self._is_probing = False

    def check(self, doing: str) -> None:
        """Raise ObjectsUnavailable while the storage is to be left alone; after that, let one request through."""
        if self._failures < FAILURES:
            return
        now = self._clock()
        if now < self._closed_until:
            raise ObjectsUnavailable(
                f"{doing}: the storage did not answer {self._failures} times in a row, "
                f"the next try is in {self._closed_until - now:.0f} s"
            )
        self._is_probing = True
        self._closed_until = now + self._pause_s  # others wait for what this one finds

    def note(self, error: BaseException | None) -> None:
        """Count the outcome of a request: None and every answer but an outage close the breaker."""
        if not isinstance(error, ObjectsUnavailable):
            self._failures, self._pause_s, self._is_probing = 0, 0.0, False
            return
        self._failures += 1
        if self._failures == FAILURES or self._is_probing:  # requests that were under way make no pause longer
            self._is_probing = False
            self._pause_s = min(LONGEST_PAUSE_S, self._pause_s * 2) if self._pause_s else FIRST_PAUSE_S
            self._closed_until = self._clock() + self._pause_s


@lru_cache(maxsize=1_000)
def breaker_of(base_url: str) -> StorageBreaker:
    """Return the breaker of the bucket at this address."""
    del base_url
    return StorageBreaker()
