"""Progress at most twice a second, whatever is told between two reports.

Time, by the events' own clock, is cut into spans of half a second, and of each span the last report is told: when the
span is over, or right before the job's end. Nothing else decides, so every connection tells the same reports under the
same ids, and one that was cut goes on without losing or doubling any.

What comes between a report and the end of its span is not kept waiting for it. The report then stands behind it, under
the last id of the event that it stands behind. A new stage or attempt tells the percentage itself: a report is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from callsheet.kernel.events import TERMINAL_EVENTS

from .stages import BEGINS

if TYPE_CHECKING:
    from callsheet.kernel.job import Event

    from .projection import Told

SPAN_MS = 500


class Debounce:
    """The report that is held back, and behind which event it stands."""

    def __init__(self, span_ms: int = SPAN_MS) -> None:
        self._span_ms = span_ms
        self._report: Told | None = None
        self._behind: Event | None = None

    @property
    def holds(self) -> bool:
        """Whether a report is held back."""
        return self._report is not None

    def hold(self, report: Told) -> None:
        """Hold a report back; it takes the place of an older one of its span."""
        self._report, self._behind = report, None

    @property
    def rest_ms(self) -> int:
        """How long the span of the report that is held back lasts from the report on; 0 when there is none."""
        return 0 if self._report is None else self._span_ms - self._report.ms % self._span_ms

    def before(self, event: Event) -> list[Told]:
        """Return the report if it is to be told before an event: its span is over, or the job is. Else note it."""
        report = self._report
        if report is None:
            return []
        if event.type in TERMINAL_EVENTS or event.ms // self._span_ms > report.ms // self._span_ms:
            return self.due()
        if event.type in BEGINS:
            self._report = None
        elif event.type != "progress":
            self._behind = event
        return []

    def due(self) -> list[Told]:
        """Return the report that is held back, and hold it no more."""
        report, behind = self._report, self._behind
        self._report = self._behind = None
        if report is None:
            return []
        return [report if behind is None else report.standing_behind(behind)]
