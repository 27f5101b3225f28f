"""Time limits and retry pauses of the client: exponential backoff with jitter, or the server's Retry-After."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import NamedTuple

from callsheet.kernel.errors import CallsheetError
from callsheet.net.backoff import pause_after

from .errors import ApiError

log = logging.getLogger("callsheet.client")
TOLD_AFTER = 3  # failures in a row before the log has a warning


class Patience(NamedTuple):
    """Time limits of a client, in seconds. `silence_s` covers three pings of the server."""

    connect_s: float = 10.0
    answer_s: float = 30.0
    silence_s: float = 45.0
    first_pause_s: float = 0.25
    longest_pause_s: float = 15.0
    retry_for_s: float = 30.0
    reconnect_for_s: float = 300.0


class Pauses:
    """The backoff of one request or stream: it gives up after `for_s` seconds without a connection."""

    def __init__(self, patience: Patience, for_s: float) -> None:
        self.hint_s = 0.0  # the server's minimum pause between two connections
        self._patience = patience
        self._for_s = for_s
        self._failures = 0
        self._deadline: float | None = None

    @property
    def longest_s(self) -> float:
        """The longest pause in seconds; a connection that lasts longer than this resets the backoff."""
        return self._patience.longest_pause_s

    def on_connection(self) -> None:
        """Reset the deadline, as the server responds; the pause length stays until `moved_on`."""
        self._deadline = None

    def moved_on(self) -> None:
        """Reset the pause length after progress: the next failure counts as the first."""
        self._failures = 0

    async def after(self, trouble: CallsheetError) -> None:
        """Wait before the next attempt; raise `trouble` if the pause would pass the deadline."""
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self._for_s
        pause_s = self._pause(trouble.retry_after_s if isinstance(trouble, ApiError) else None)
        if now + pause_s > self._deadline:
            raise trouble
        self._failures += 1
        tell = log.warning if self._failures == TOLD_AFTER else log.debug
        tell("%s; trying again in %.1f s", trouble, pause_s)
        await asyncio.sleep(pause_s)

    def _pause(self, asked_s: float | None) -> float:
        """Return the next pause in seconds. Its jitter spreads the clients that lost the same server over time."""
        if asked_s is not None:
            return asked_s * random.uniform(1.0, 1.1)  # noqa: S311 - no secret
        longest_s = self._patience.longest_pause_s
        pause_s = pause_after(self._failures, self._patience.first_pause_s, longest_s, jitter=1)
        return min(longest_s, self.hint_s + pause_s)
