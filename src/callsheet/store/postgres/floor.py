"""The position where a claim begins to read the line, so that dead index entries cost nothing."""

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
    """The result of a look at a queue."""

    lowest: int | None  # the lowest live position, None if no job is in line
    end: int  # the end of the whole line, all queues
    ended: int | None = None  # the position of a job that ended LAG_S ago or earlier, if any


class Floor:
    """A lower bound on the positions of live jobs, for each queue.

    An old snapshot (a forgotten transaction, a dump) keeps vacuum from removing the index entries of claimed jobs, and
    a scan from the start of the line would visit all of them on every claim: 50,000 dead entries cost 6 ms. So after
    the first claim, and from time to time, a look reads the lowest live position of a queue (all priorities, claimed or
    not), and claims begin at that position until the next look. Most looks begin at the floor; looks from zero take at
    most 1/50 of the time.

    New positions come from a sequence and lie above the floor. The exception is a writer that drew its positions before
    a look and commits after it. Therefore the floor also stays below the end of the line LAG_S ago: only later commits
    can be missed, and only until the next look from zero, which lowers the floor again. A look saw that end, or a job
    that ended at that time gives its position as a lower bound, which a new process can read.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.told_of: set[str] = set()  # queues in which a claim met a job with claim callbacks
        self._clock = clock
        self._floors: dict[str, int] = {}
        self._next_look: dict[str, float] = {}
        self._next_full: dict[str, float] = {}
        self._ends: deque[tuple[float, int]] = deque()
        self._next_due: dict[str, float] = {}

    def of(self, queue: str) -> int:
        """Return the position to begin at; 0 skips no job."""
        return self._floors.get(queue, 0)

    def wants_look(self, queue: str) -> bool:
        """Return whether a look at the line is due; never at a queue's first claim, which must not wait for a look."""
        if queue not in self._next_look:
            self._next_look[queue] = 0.0
            return False
        return self._clock() >= self._next_look[queue]

    def wants_due(self, queue: str) -> bool:
        """Return whether an empty claim should query due jobs: at most once per 0.1 s, however many claims run."""
        now = self._clock()
        if now < self._next_due.get(queue, 0.0):
            return False
        self._next_due[queue] = now + DUE_EVERY_S
        return True

    def look_from(self, queue: str) -> int:
        """Return the position where a look must begin: the floor, or zero."""
        self._next_look[queue] = self._clock() + LOOK_EVERY_S
        return self.of(queue) if self._clock() < self._next_full.get(queue, 0.0) else 0

    def looked(self, queue: str, look: Look, took_s: float, *, full: bool = True) -> None:
        """Record a look at the line as of its start, `took_s` ago; `full` if the look began at zero."""
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
