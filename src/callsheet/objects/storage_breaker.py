"""A circuit breaker per storage, shared by the whole process: requests to an unavailable storage pause.

After five failures in a row every request fails at once, so that jobs do not occupy slots until time-outs. After
the pause one probe request passes; if the probe fails, the pause doubles, up to one minute.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache

from callsheet.net.backoff import doubled

from .errors import ObjectsUnavailable

FAILURES = 5
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0


class StorageBreaker:
    """Counts consecutive failures of one storage. `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._pause_s = 0.0
        self._closed_until = 0.0
        self._is_probing = False

    def check(self, doing: str) -> None:
        """Raise ObjectsUnavailable during the pause; after the pause, let one probe request pass."""
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
        """Record a request's outcome: success (None) and every error except ObjectsUnavailable close the breaker."""
        if not isinstance(error, ObjectsUnavailable):
            self._failures, self._pause_s, self._is_probing = 0, 0.0, False
            return
        self._failures += 1
        if self._failures == FAILURES or self._is_probing:  # requests that were under way make no pause longer
            self._is_probing = False
            self._pause_s = doubled(self._pause_s, FIRST_PAUSE_S, LONGEST_PAUSE_S)
            self._closed_until = self._clock() + self._pause_s


@lru_cache(maxsize=1_000)
def breaker_of(base_url: str) -> StorageBreaker:
    """Return the breaker of the bucket at this address."""
    del base_url
    return StorageBreaker()
