"""How slowly a client may send a request body: a limit per pause, and a minimum average rate.

Only time in which the server waits for the client counts. A disk that writes an upload slowly harms nobody.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from .problems import Problem

if TYPE_CHECKING:
    from starlette.types import Message, Receive

GRACE_S = 10.0


class Pace(NamedTuple):
    """The limits. `rate` is the minimum average in bytes per second, enforced after `grace_s`; 0 sets no minimum."""

    idle_s: float = 10.0
    rate: float = 1024.0
    grace_s: float = GRACE_S


UPLOADS = Pace(idle_s=30.0)


class Meter:
    """Measures one body against its pace."""

    def __init__(self, pace: Pace, clock: Callable[[], float] = time.monotonic) -> None:
        self._pace, self._clock = pace, clock
        self._waited_s = 0.0

    def patience_s(self, read_bytes: int) -> float:
        """Return the seconds that the next piece may take after `read_bytes` bytes; 0 or less if the body is late."""
        idle_s, rate, grace_s = self._pace
        earned_s = grace_s + read_bytes / rate - self._waited_s if rate else math.inf
        return min(idle_s, earned_s)

    def add_wait(self, seconds: float) -> None:
        """Add time that the server spent waiting for the client."""
        self._waited_s += seconds

    async def next(self, receive: Receive, read_bytes: int) -> Message:
        """Return the next message of the body; raises Problem `request_timeout`."""
        started_at = self._clock()
        try:
            async with asyncio.timeout(max(0.0, self.patience_s(read_bytes))):
                message = await receive()
        except TimeoutError:
            raise self._late() from None
        self.add_wait(self._clock() - started_at)
        return message

    def _late(self) -> Problem:
        pace = self._pace
        least = f" and come at {pace.rate:g} bytes in a second or faster" if pace.rate else ""
        return Problem("request_timeout", f"the body must not pause for {pace.idle_s:g} s{least}; send it again")
