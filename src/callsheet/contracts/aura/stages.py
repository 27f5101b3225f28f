"""Derives a job's stage from its events: a checkpoint, the next stage or a successful end completes the open stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from callsheet.kernel.job import Event
    from callsheet.store.protocol import Store

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
