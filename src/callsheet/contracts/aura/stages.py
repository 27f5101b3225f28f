"""Which stage a job is in, by its events: the next stage and a good end complete it, and its own checkpoint does."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from callsheet.kernel.job import Event
    from callsheet.store.protocol import Store

BEGINS = frozenset({"running", "stage"})  # an attempt is in no stage at first
SPEAKS = BEGINS | {"checkpoint", "done"}  # types of events that say something about stages
LOOK, MOST = 200, 20_000  # events that are looked at, at first and at most


class Stages:
    """The stage that was started and is not yet told to be completed; '' when there is none."""

    def __init__(self) -> None:
        self.open = ""

    def completed_by(self, event: Event) -> str:
        """Take an event in, and return the stage that it completes without saying so itself; '' when it does not."""
        before = self.open
        if event.type in BEGINS:
            self.open = event.step if event.type == "stage" else ""
        elif event.type == "checkpoint" and event.step == before:
            self.open = ""  # the checkpoint tells of it
        return before if event.type in ("stage", "done") else ""


async def since_its_stage_began(store: Store, job_id: str, before: int) -> list[Event]:
    """Return the events of a job from the beginning of its stage or attempt, up to one of the number `before`."""
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
    found: list[Event] = []
    while after < before - 1:
        page = await store.events({job_id: after}, min(LOOK * 5, before - 1 - after))
        if not page:
            break
        found += page
        after = page[-1].seq
    return found
