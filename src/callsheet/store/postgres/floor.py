"""Where a claim begins to read the line, so that rows which are long gone cost nothing."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

LAG_S = 1.0
LOOK_EVERY_S = 0.5
FULL_LOOK_EVERY_S = 1.0
FULL_LOOK_SHARE = 50
FULL_LOOK_AT_LEAST_EVERY_S = 10.0
DUE_EVERY_S = 0.1


class Look(NamedTuple):
    """What a look at a queue found."""

    lowest: int | None  # the lowest live position, None if no job is in line
    end: int  # of the whole line, all queues
    ended: int | None = None  # the place of a job that has ended LAG_S ago or earlier, if there is one


class Floor:
    """A lower bound on the positions of live jobs, for each queue.

    An old snapshot (a forgotten transaction, a dump) keeps vacuum from removing the index entries of claimed
    jobs, and a scan from the start of the line would visit all of them on every claim: 50,000 dead entries cost
    6 ms. So after the first claim, and now and then, a look finds the lowest live position of a queue (all
    priorities, claimed or not), and claims begin there until the next look. Most looks begin at the floor; now and
    then, and for at most 1/50 of the time, one begins at zero.

    New places come from a sequence, so they lie above. The exception is a writer that drew its places before a
    look and commits after it. Therefore the floor also stays below the end of the line as it was LAG_S ago: only
    what commits later than that can be passed over, and only until the next look from zero, which goes back down.
    That end was seen by a look, or is at least the place of a job that ended then, which a new process can ask for.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.told_of: set[str] = set()  # queues in which a job was met whose claims are told of
        self._clock = clock
        self._floors: dict[str, int] = {}
        self._next_look: dict[str, float] = {}
        self._next_full: dict[str, float] = {}
        self._ends: deque[tuple[float, int]] = deque()
        self._next_due: dict[str, float] = {}

    def of(self, queue: str) -> int:
        """The position to begin at; 0 hides nothing."""
        return self._floors.get(queue, 0)

    def wants_look(self, queue: str) -> bool:
        """True when it is time to look at the line: at the second claim, because the first is not to wait for it."""
        if queue not in self._next_look:
            self._next_look[queue] = 0.0
            return False
        return self._clock() >= self._next_look[queue]

    def wants_due(self, queue: str) -> bool:
        """True when a claim that found nothing is to ask for due jobs: not each of many that hints have woken."""
        now = self._clock()
        if now < self._next_due.get(queue, 0.0):
            return False
        self._next_due[queue] = now + DUE_EVERY_S
        return True

    def look_from(self, queue: str) -> int:
        """Where a look that begins now has to begin: at the floor, or at zero."""
        self._next_look[queue] = self._clock() + LOOK_EVERY_S
        return self.of(queue) if self._clock() < self._next_full.get(queue, 0.0) else 0

    def looked(self, queue: str, look: Look, took_s: float, *, full: bool = True) -> None:
        """Take in a look that saw the line as it was when it began, `took_s` ago; `full` if it began at zero."""
        now = self._clock()
        seen_at = now - took_s
        self._next_look[queue] = now + LOOK_EVERY_S
        if full:
            pause_s = min(FULL_LOOK_SHARE * took_s, FULL_LOOK_AT_LEAST_EVERY_S)
            self._next_full[queue] = now + max(FULL_LOOK_EVERY_S, pause_s)
        self._ends.append((now, look.end))
        while len(self._ends) > 1 and self._ends[1][0] <= seen_at - LAG_S:
            self._ends.popleft()
        settled = self._ends[0][1] if self._ends[0][0] <= seen_at - LAG_S else look.ended or 0
        self._floors[queue] = settled if look.lowest is None else min(look.lowest, settled)
