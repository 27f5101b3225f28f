"""How long the client tries, and how it waits in between: twice as long each time, with chance, as the server asks."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import NamedTuple

from callsheet.kernel.errors import CallsheetError

from .errors import ApiError

log = logging.getLogger("callsheet.client")
TOLD_AFTER = 3  # failures in a row before somebody is told


class Patience(NamedTuple):
    """Limits of a client, in seconds. `silence_s` is three of the server's pings."""

    connect_s: float = 10.0
    answer_s: float = 30.0
    silence_s: float = 45.0
    first_pause_s: float = 0.25
    longest_pause_s: float = 15.0
    retry_for_s: float = 30.0
    reconnect_for_s: float = 300.0


class Pauses:
    """The pauses between the tries of one thing, for `for_s` seconds without a sign of life."""

    def __init__(self, patience: Patience, for_s: float) -> None:
        self.hint_s = 0.0  # the least that the server wants between two connections
        self._patience = patience
        self._for_s = for_s
        self._failures = 0
        self._deadline: float | None = None

    @property
    def longest_s(self) -> float:
        """The longest pause; a connection that outlives it was no failure."""
        return self._patience.longest_pause_s

    def connected(self) -> None:
        """The server lives; the pauses stay as long as they are until it is of use."""
        self._deadline = None

    def moved_on(self) -> None:
        """It was of use: the next trouble is a new one."""
        self._failures = 0

    async def after(self, trouble: CallsheetError) -> None:
        """Wait before the next try; raises the trouble itself when patience is over."""
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
        """Chance spreads clients that lost the same server over time."""
        if asked_s is not None:
            return asked_s * random.uniform(1.0, 1.1)  # noqa: S311 - no secret
        ceiling = min(self._patience.longest_pause_s, self._patience.first_pause_s * 2 ** min(self._failures, 20))
        pause_s = self.hint_s + random.uniform(0.0, ceiling)  # noqa: S311
        return min(self._patience.longest_pause_s, pause_s)
