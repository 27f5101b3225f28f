"""Limits progress reports to two a second.

Event time is cut into spans of 500 ms. A span's last report is sent when the span is over, or right before the job's
end. Nothing else decides, so every connection sends the same reports with the same ids, and a resumed connection
neither loses nor repeats a report. If a report arrives after its span's report was sent, it counts for the next span.

Other events are sent at once, even while a report waits for its span's end. The report then follows these events, and
its id extends the last event's id. A new stage or attempt reports its own percentage: a waiting report is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from callsheet.kernel.events import TERMINAL_EVENTS

from .stages import BEGINS

if TYPE_CHECKING:
    from callsheet.kernel.job import Event

    from .projection import ContractEvent

SPAN_MS = 500


class Debounce:
    """Holds back the latest progress report, and remembers the event that it must follow."""

    def __init__(self, span_ms: int = SPAN_MS) -> None:
        self._span_ms = span_ms
        self._report: ContractEvent | None = None
        self._behind: Event | None = None
        self._sent_span = -1

    @property
    def holds(self) -> bool:
        """Return True if a report is held back."""
        return self._report is not None

    def hold(self, report: ContractEvent) -> None:
        """Hold back a report; it replaces an older report of the same span."""
        self._report, self._behind = report, None

    @property
    def rest_ms(self) -> int:
        """Return the milliseconds from the held report to the end of its span, 0 without a held report."""
        return 0 if self._report is None else (self._span_of(self._report) + 1) * self._span_ms - self._report.ms

    def before(self, event: Event) -> list[ContractEvent]:
        """Return the held report if its span or the job ends with this event; otherwise remember or drop the report."""
        report = self._report
        if report is None:
            return []
        if event.type in TERMINAL_EVENTS or event.ms // self._span_ms > self._span_of(report):
            return self.due()
        if event.type in BEGINS:
            self._report = None
        elif event.type != "progress":
            self._behind = event
        return []

    def due(self) -> list[ContractEvent]:
        """Return the held report and clear it."""
        report, behind = self._report, self._behind
        self._report = self._behind = None
        if report is None:
            return []
        self._sent_span = self._span_of(report)
        return [report if behind is None else report.standing_behind(behind)]

    def _span_of(self, report: ContractEvent) -> int:
        """Return the number of the span that a report counts for."""
        return max(report.ms // self._span_ms, self._sent_span + 1)
