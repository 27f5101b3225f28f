"""The contract's stream: its events, at most two reports of progress a second, and a comment with the time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from callsheet.http.attempt_files import artifacts_of
from callsheet.http.sse import EventStream, frame
from callsheet.kernel.errors import CallsheetError, JobNotFound
from callsheet.kernel.events import TERMINAL_EVENTS

from .debounce import SPAN_MS, Debounce
from .projection import PLACES, Left, Place, Told, log_lines, told
from .stages import Stages, since_its_stage_began

if TYPE_CHECKING:
    from callsheet.engine.watch import Watcher
    from callsheet.http.keys import Principal
    from callsheet.http.site import Site
    from callsheet.kernel.job import Event, Job

KEEPALIVE_S = 10.0
DEBOUNCE_S = SPAN_MS / 1000
TIMER_S = 0.001  # a timer of the event loop may be early by less than this
LAST_EVENTS = 200  # of a job that has ended, to find the lines of its log in


class LiveStream(EventStream):
    """One connection of one client to one job. `first` is what it is told before all else, `after` where it goes on."""

    def __init__(  # noqa: PLR0913, PLR0917 - what one connection is
        self, site: Site, who: Principal, first: bytes, watcher: Watcher, job: Job, after: Place | None
    ) -> None:
        super().__init__(site, who, first, watcher)
        self.ping_s, self.steady = KEEPALIVE_S, True
        self._job, self._after, self._behind = job, after, after is not None
        self._stages, self._debounce = Stages(), Debounce(round(DEBOUNCE_S * 1000))
        self._last_at = float("-inf")
        self._due_at: float | None = None  # when the report that is held back will be told, if nothing comes before

    def ping(self) -> bytes:
        """The contract's keepalive."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return f": keepalive: {now}\n\n".encode()

    async def frames(self, events: list[Event]) -> bytes:
        """The contract's frames for these events, and what was held back and is due."""
        try:
            if self._behind and events:
                await self._catch_up(events[0].seq)
            written = [found for event in events for found in await self._told(event)]
        except CallsheetError:
            self.end()
            message = "the store cannot be reached now; connect again"
            return frame("error", {"message": message, "correlationId": self._job.correlation_id})
        return b"".join(frame(found.type, found.data, found.id) for found in self._paced(written))

    def _paced(self, written: list[Told]) -> list[Told]:
        """Return what is told now, with the report that is due; come back in time for one that is not yet."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._debounce.holds and self._due_at is not None and now >= self._due_at:
            written = [*written, *self._debounce.due()]
        if any(found.type == "step-progress" for found in written):
            self._last_at, self._due_at = now, None
        if not self._debounce.holds:
            self._due_at = None
        elif self._due_at is None:
            self._due_at = max(now + self._debounce.rest_ms / 1000, self._last_at + DEBOUNCE_S)
            loop.call_at(self._due_at + TIMER_S, self._watcher.poke)
        return written

    async def _catch_up(self, before: int) -> None:
        """Take in what the client has seen, as far as what follows depends on it."""
        for event in await since_its_stage_began(self._site.engine.store, self._job.job_id, before):
            self._debounce.before(event)
            if event.type == "progress":
                self._debounce.hold(*told(event, self._job))
            self._stages.completed_by(event)
        self._behind = False

    async def _told(self, event: Event) -> list[Told]:
        """An event in the contract's words, after a report that is due; of one that the client stood at, the rest."""
        left = await self._at_the_end(event) if event.type in TERMINAL_EVENTS else Left()
        report = self._debounce.before(event)
        own = told(event, self._job, left, completes=self._stages.completed_by(event))
        if self._after is not None and event.seq == self._after.seq:
            if event.type == "progress" or self._after.told >= PLACES:
                self._debounce.due()  # it has seen that, too
            return [found for found in own if found.place >= self._after.told]
        if event.type == "progress":
            self._debounce.hold(*own)
            return report
        return report + own

    async def _at_the_end(self, event: Event) -> Left:
        """Read the job as it ended, and what it left; nothing of one that was pruned a moment ago."""
        try:
            self._job = await self._site.engine.get(self._job.job_id)
            return await self._left(event)
        except JobNotFound:
            return Left()

    async def _left(self, event: Event) -> Left:
        engine, job_id = self._site.engine, self._job.job_id
        files = [_shown(file) for file in await artifacts_of(engine.store, job_id)]
        last = await engine.store.events({job_id: max(0, event.seq - LAST_EVENTS)}, LAST_EVENTS)
        return Left(files, log_lines(last))


def _shown(file: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in file.items() if name != "key"}
