"""Where a claim begins to read the line, so that rows which are long gone cost nothing."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LAG_S = 3.0
LOOK_EVERY_S = 1.0
LOOK_SHARE = 50


class Floor:
    """A lower bound on the positions of live jobs, for each queue.

    An old snapshot (a forgotten transaction, a dump) keeps vacuum from removing the index entries of claimed jobs, and
    a scan from the start of the line would visit all of them on every claim: 100,000 dead entries cost some 30 ms.
    So now and then, at most every second and for at most 1/50 of the time, a look from zero finds the lowest live
    position of a queue (all priorities, claimed or not), and claims until the next look begin there.

    New places come from a sequence, so they lie above. The exception is a writer that drew its places before the look
    and commits after it. Therefore the floor also stays below the end of the line as it was LAG_S seconds ago: only
    what commits later than that can be passed over, and only until the next look, which sees it and goes back down.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._floors: dict[str, int] = {}
        self._next_look: dict[str, float] = {}
        self._ends: deque[tuple[float, int]] = deque()

    def of(self, queue: str) -> int:
        """The position to begin at; 0 hides nothing."""
        return self._floors.get(queue, 0)

    def wants_look(self, queue: str) -> bool:
        """True when it is time to look at the line from zero again."""
        now = self._clock()
        return now >= self._next_look.setdefault(queue, now + LOOK_EVERY_S)

    def looked(self, queue: str, lowest: int | None, end: int, took_s: float) -> None:
        """What a look found: the lowest live position (None: no job is in line) and the end of the whole line."""
        now = self._clock()
        self._next_look[queue] = now + max(LOOK_EVERY_S, LOOK_SHARE * took_s)
        self._ends.append((now, end))
        while len(self._ends) > 1 and self._ends[1][0] <= now - LAG_S:
            self._ends.popleft()
        settled = self._ends[0][1] if self._ends[0][0] <= now - LAG_S else 0
        self._floors[queue] = settled if lowest is None else min(lowest, settled)
