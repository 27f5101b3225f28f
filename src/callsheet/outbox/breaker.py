"""A breaker for each destination: one that fails is left alone for a while, then tried with a single event. Pure.

closed → open after 10 failures in a row, or when half of the last 20 attempts failed; open → half-open when its time is
over (30 s, twice as long after each probe that fails, at most 1 h); half-open → closed or open by that one probe.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import NamedTuple

from callsheet.kernel.job import Json
from callsheet.store.clock import TOLERANCE_MS

IN_A_ROW = 10
SEEN, RATE = 20, 0.5
NOTED = 3  # failures in a row from which on other processes are told
FIRST_OPEN_MS = 30_000
MOST_OPEN_MS = 3_600_000
DISABLE_AFTER_MS = 5 * 86_400_000


class State(StrEnum):
    """Whether events go out: all, none, or one to see."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker(NamedTuple):
    """What is known of one destination. Times are milliseconds of the store's clock.

    `probe_at` is when an open one may be tried, or when the probe of a half-open one is given up for lost.
    """

    state: State = State.CLOSED
    failures: int = 0
    recent: tuple[bool, ...] = ()
    open_ms: int = 0
    probe_at: int = 0
    failing_since: int | None = None

    def after(self, *, ok: bool, now: int) -> Breaker:
        """As an attempt leaves it."""
        if ok:
            closed = self.state is State.CLOSED
            return Breaker(recent=(*self.recent, True)[-SEEN:] if closed else ())
        recent = (*self.recent, False)[-SEEN:]
        failed = self._replace(
            failures=self.failures + 1,
            recent=recent,
            failing_since=now if self.failing_since is None else self.failing_since,
        )
        if self.state is State.OPEN:
            return failed  # an attempt that had begun before it opened
        rate = len(recent) == SEEN and recent.count(False) >= SEEN * RATE
        if self.state is State.HALF_OPEN or failed.failures >= IN_A_ROW or rate:
            return failed.opened(now)
        return failed

    def opened(self, now: int) -> Breaker:
        """Open, for twice as long as the last time."""
        open_ms = min(self.open_ms * 2, MOST_OPEN_MS) if self.open_ms else FIRST_OPEN_MS
        return self._replace(state=State.OPEN, open_ms=open_ms, probe_at=now + open_ms, recent=())

    def probing(self, now: int, patience_ms: int) -> Breaker:
        """Half open, with a probe under way that must report in time."""
        return self._replace(state=State.HALF_OPEN, probe_at=now + patience_ms)

    def may_probe(self, now: int) -> bool:
        """Whether the time has come; a probe that never reported is made again.

        One that is later than any may be was noted by a clock that was ahead: its time has come as well.
        """
        longest_ms = self.open_ms if self.state is State.OPEN else MOST_OPEN_MS
        return self.state is not State.CLOSED and not now < self.probe_at <= now + longest_ms + TOLERANCE_MS

    @property
    def worth_noting(self) -> bool:
        """Whether other processes should know."""
        return self.state is not State.CLOSED or self.failures >= NOTED

    def is_hopeless(self, now: int) -> bool:
        """Nothing but failures for five days."""
        return self.failing_since is not None and now - self.failing_since >= DISABLE_AFTER_MS

    def json(self) -> Json:
        """As a document."""
        fields = self._asdict()
        del fields["recent"]
        return json.dumps(fields)


def read(body: Json) -> Breaker:
    """What `json` wrote; other members are left out."""
    fields = {name: value for name, value in json.loads(body).items() if name in Breaker._fields}
    fields.pop("recent", None)
    return Breaker(**{**fields, "state": State(fields.get("state", "closed"))})
