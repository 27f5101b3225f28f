"""A circuit breaker per destination: after failures deliveries pause, then a single event probes. Pure functions.

closed → open after 10 failures in a row, or when half of the last 20 attempts failed; open → half-open when its time is
over (30 s, twice as long after each probe that fails, at most 1 h); half-open → closed or open by that one probe.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import NamedTuple

from callsheet.kernel.job import Json
from callsheet.net.backoff import doubled
from callsheet.store.clock import TOLERANCE_MS

IN_A_ROW = 10
SEEN, RATE = 20, 0.5
NOTED = 3  # consecutive failures before the breaker is written for other processes
FIRST_OPEN_MS = 30_000
MOST_OPEN_MS = 3_600_000
DISABLE_AFTER_MS = 5 * 86_400_000


class State(StrEnum):
    """Breaker state: closed sends all events, open sends none, half-open sends one probe."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker(NamedTuple):
    """The failure history of one destination. Times are milliseconds of the store's clock.

    `probe_at` is the time of an open breaker's next probe, or the deadline of a half-open breaker's running probe.
    """

    state: State = State.CLOSED
    failures: int = 0
    recent: tuple[bool, ...] = ()
    open_ms: int = 0
    probe_at: int = 0
    failing_since: int | None = None

    def after(self, *, ok: bool, now: int) -> Breaker:
        """Return the breaker after an attempt succeeded or failed."""
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
            return failed  # the attempt began before the breaker opened
        rate = len(recent) == SEEN and recent.count(False) >= SEEN * RATE
        if self.state is State.HALF_OPEN or failed.failures >= IN_A_ROW or rate:
            return failed.opened(now)
        return failed

    def opened(self, now: int) -> Breaker:
        """Return the breaker opened, with twice the previous pause (30 s at first, at most 1 h)."""
        open_ms = doubled(self.open_ms, FIRST_OPEN_MS, MOST_OPEN_MS)
        return self._replace(state=State.OPEN, open_ms=open_ms, probe_at=now + open_ms, recent=())

    def probing(self, now: int, patience_ms: int) -> Breaker:
        """Return the breaker half-open, with a probe that must report within `patience_ms`."""
        return self._replace(state=State.HALF_OPEN, probe_at=now + patience_ms)

    def may_probe(self, now: int) -> bool:
        """Return whether a probe is due, including a probe that missed its deadline.

        A `probe_at` beyond the longest pause was written by a clock that ran ahead, and counts as due.
        """
        longest_ms = self.open_ms if self.state is State.OPEN else MOST_OPEN_MS
        return self.state is not State.CLOSED and not now < self.probe_at <= now + longest_ms + TOLERANCE_MS

    @property
    def worth_noting(self) -> bool:
        """Return whether the breaker is stored for other processes: not closed, or three failures."""
        return self.state is not State.CLOSED or self.failures >= NOTED

    def is_hopeless(self, now: int) -> bool:
        """Return whether every attempt failed for five days."""
        return self.failing_since is not None and now - self.failing_since >= DISABLE_AFTER_MS

    def json(self) -> Json:
        """Return the breaker as JSON for its document."""
        fields = self._asdict()
        del fields["recent"]
        return json.dumps(fields)


def read(body: Json) -> Breaker:
    """Parse a breaker from its JSON; ignores unknown fields."""
    fields = {name: value for name, value in json.loads(body).items() if name in Breaker._fields}
    fields.pop("recent", None)
    return Breaker(**{**fields, "state": State(fields.get("state", "closed"))})
