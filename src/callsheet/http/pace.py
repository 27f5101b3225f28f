"""How slowly the body of a request may come: a limit for each pause, and a least rate for the whole.

Only the time in which the server waits for the client counts. A disk that is slow to take an upload harms nobody.
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
    """The limits. `rate` is in bytes a second, on average, after `grace_s`; 0 sets no least rate."""

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
        """How long the next piece may take, when so many bytes are here; 0 or less when it is late already."""
        idle_s, rate, grace_s = self._pace
        earned_s = grace_s + read_bytes / rate - self._waited_s if rate else math.inf
        return min(idle_s, earned_s)

    def waited(self, seconds: float) -> None:
        """Count time in which the client was waited for."""
        self._waited_s += seconds

    async def next(self, receive: Receive, read_bytes: int) -> Message:
        """The next piece of the body; raises Problem `request_timeout`."""
        started_at = self._clock()
        try:
            async with asyncio.timeout(max(0.0, self.patience_s(read_bytes))):
                message = await receive()
        except TimeoutError:
            raise self._late() from None
        self.waited(self._clock() - started_at)
        return message

    def _late(self) -> Problem:
        pace = self._pace
        least = f" and come at {pace.rate:g} bytes in a second or faster" if pace.rate else ""
        return Problem("request_timeout", f"the body must not pause for {pace.idle_s:g} s{least}; send it again")
