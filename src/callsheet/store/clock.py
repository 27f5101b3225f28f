"""The part of the store protocol that is about a clock that steps: what waits is moved to the clock as it is now."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from .protocol import Document

TOLERANCE_MS = 5_000
"""A clock that is off by less has not stepped: nobody waits long for so little."""


class ClockStep(NamedTuple):
    """The store's clock shows `after`, and would show `before` had it gone on evenly.

    Before a step back, what was last written at `since` or later was written by a clock that was ahead; None: all was.
    """

    before: int
    after: int
    since: int | None = None

    @property
    def shift_ms(self) -> int:
        """By how much the clock moved: above 0 is forward."""
        return self.after - self.before


class Rebased(NamedTuple):
    """How many rows a step has moved: jobs that wait, leases of jobs, callbacks that wait or are being delivered."""

    jobs: int = 0
    leases: int = 0
    callbacks: int = 0


class ClockVerbs(Protocol):
    """What every store does when its clock has stepped."""

    async def rebase(self, step: ClockStep, mark: Document) -> Rebased:
        """Move what waits by a step of the clock, and write `mark`, all or nothing; raises DocumentConflict.

        S44: of many that saw the same step one moves, by the version of `mark`. A lease that was alive before the
            step has as long to live after it; one that was renewed since the step stays as it is. After a step back, a
            delay ends as long after the step as it had left before it. A moment that was asked for (`run_at`) stays;
            so do all times that tell of the past. A step forward moves leases alone: what waits may have become due.
        """
        ...
