"""Limits progress reports to two a second.

Event time is cut into spans of 500 ms. A span's last report is sent when the span is over, or right before the job's
end. Nothing else decides, so every connection sends the same reports with the same ids, and a resumed connection
neither loses nor repeats a report. If a report arrives after its span's report was sent, it counts for the next span.

Other events are sent at once, even while a report waits for its span's end. The report then follows these events, and
its id extends the last event's id. A new stage or attempt reports its own percentage: a waiting report is dropped.

`Stages` derives the stage from the events: a checkpoint, the next stage or a successful end completes the open stage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from callsheet.kernel.events import TERMINAL_EVENTS

if TYPE_CHECKING:
    from callsheet.kernel.job import Event
    from callsheet.store.protocol import Store

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


BEGINS = frozenset({"running", "stage"})  # a new attempt has no stage yet
SPEAKS = BEGINS | {"checkpoint", "done"}  # types of events that say something about stages
LOOK, MOST = 200, 20_000  # events read, at first and at most


class Stages:
    """Tracks the stage that has started and is not yet reported as completed; '' if no stage is open."""

    def __init__(self) -> None:
        self.open = ""

    def completed_by(self, event: Event) -> str:
        """Apply an event; returns the stage that the event completes implicitly, '' if none."""
        before = self.open
        if event.type in BEGINS:
            self.open = event.step if event.type == "stage" else ""
        elif event.type == "checkpoint" and event.step == before:
            self.open = ""  # the checkpoint itself reports this completion
        return before if event.type in ("stage", "done") else ""


async def since_its_stage_began(store: Store, job_id: str, before: int) -> list[Event]:
    """Return the job's events from the start of its stage or attempt, up to event number `before`."""
    look = LOOK
    while True:
        first = max(0, before - 1 - look)
        events = await _events(store, job_id, first, before)
        begins = [n for n, event in enumerate(events) if event.type in BEGINS]
        if begins or first == 0 or look >= MOST:
            return events[begins[-1] :] if begins else events
        look *= 10


async def _events(store: Store, job_id: str, after: int, before: int) -> list[Event]:
    """Return the events between two numbers, read by pages."""
    events: list[Event] = []
    while after < before - 1:
        page = await store.events({job_id: after}, min(LOOK * 5, before - 1 - after))
        if not page:
            break
        events += page
        after = page[-1].seq
    return events
