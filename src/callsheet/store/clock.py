"""The clock's part of the store protocol: after a step of the clock, move waiting times by the step."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from .protocol import Document

TOLERANCE_MS = 5_000
"""Smaller differences are not treated as steps: the error in waiting times is too small to matter."""


class ClockStep(NamedTuple):
    """A step of the store's clock: it shows `after`, and would show `before` if it had run evenly.

    Before a step back, rows last written at `since` or later were written by a clock that ran ahead; None: all rows
    were.
    """

    before: int
    after: int
    since: int | None = None

    @property
    def shift_ms(self) -> int:
        """The distance of the step in milliseconds; positive is forward."""
        return self.after - self.before


class Rebased(NamedTuple):
    """How many rows a step has moved: waiting jobs, leases of jobs, and callbacks that wait or are being delivered."""

    jobs: int = 0
    leases: int = 0
    callbacks: int = 0


class ClockVerbs(Protocol):
    """The verb that every store runs after its clock has stepped."""

    async def rebase(self, step: ClockStep, mark: Document) -> Rebased:
        """Move waiting times by a step of the clock and write `mark`, all or nothing; raises DocumentConflict.

        S44: if many processes see the same step, one of them moves the times, decided by the version of `mark`. A lease
            that was alive before the step keeps its remaining time; a lease renewed since the step stays as it is.
            After a step back, a delay keeps its remaining time. A requested moment (`run_at`) stays, as do past times.
            A step forward moves leases alone: waiting jobs may have become due.
        """
