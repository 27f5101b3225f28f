"""The contract's event stream: events, at most two progress reports a second, and keepalive comments with the time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from callsheet.http.attempt_files import artifacts_of
from callsheet.http.sse import EventStream, frame
from callsheet.kernel.errors import CallsheetError, JobNotFound
from callsheet.kernel.events import TERMINAL_EVENTS

from .debounce import SPAN_MS, Debounce, Stages, since_its_stage_began
from .projection import PLACES, ContractEvent, Output, Position, contract_events, log_lines

if TYPE_CHECKING:
    from callsheet.engine.watch import Watcher
    from callsheet.http.keys import Principal
    from callsheet.http.state import ServerState
    from callsheet.kernel.job import Event, Job

KEEPALIVE_S = 10.0
DEBOUNCE_S = SPAN_MS / 1000
TIMER_S = 0.001  # a timer of the event loop may be early by less than this
LAST_EVENTS = 200  # events of an ended job that are searched for log lines


class LiveStream(EventStream):
    """One client's connection to one job. `first` is sent before any event; `after` is the place to resume from."""

    def __init__(  # noqa: PLR0913, PLR0917 - what one connection is
        self, state: ServerState, who: Principal, first: bytes, watcher: Watcher, job: Job, after: Position | None
    ) -> None:
        super().__init__(state, who, first, watcher)
        self.ping_s, self.steady = KEEPALIVE_S, True
        self._job, self._after, self._behind = job, after, after is not None
        self._stages, self._debounce = Stages(), Debounce(round(DEBOUNCE_S * 1000))
        self._last_at = float("-inf")
        self._due_at: float | None = None  # loop time at which the held report is sent

    def ping(self) -> bytes:
        """Return the contract's keepalive comment."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return f": keepalive: {now}\n\n".encode()

    async def frames(self, events: list[Event]) -> bytes:
        """Return the contract's frames for these events, including a held progress report that is due."""
        try:
            if self._behind and events:
                await self._catch_up(events[0].seq)
            contract_events = [one for event in events for one in await self._events_of(event)]
        except CallsheetError:
            self.end()
            message = "the store cannot be reached now; connect again"
            return frame("error", {"message": message, "correlationId": self._job.correlation_id})
        return b"".join(frame(one.type, one.data, one.id) for one in self._pace(contract_events))

    def _pace(self, events: list[ContractEvent]) -> list[ContractEvent]:
        """Return the events to send now, including a due report; schedule a wake-up for a report that is due later."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if any(event.type == "step-progress" for event in events):
            self._last_at, self._due_at = now, None  # that time was this report's; a newer one has its own
        elif self._debounce.holds and self._due_at is not None and now >= self._due_at:
            events = [*events, *self._debounce.due()]
            self._last_at = now
        if not self._debounce.holds:
            self._due_at = None
        elif self._due_at is None:
            self._due_at = max(now + self._debounce.rest_ms / 1000, self._last_at + DEBOUNCE_S)
            loop.call_at(self._due_at + TIMER_S, self._watcher.poke)
        return events

    async def _catch_up(self, before: int) -> None:
        """Replay the current stage's events that the client has seen, to restore stage and debounce state."""
        for event in await since_its_stage_began(self._state.engine.store, self._job.job_id, before):
            self._debounce.before(event)
            if event.type == "progress":
                self._debounce.hold(*contract_events(event, self._job))
            self._stages.completed_by(event)
        self._behind = False

    async def _events_of(self, event: Event) -> list[ContractEvent]:
        """Return an event in the contract's words, after a due report; parts the client has seen are skipped."""
        left = await self._at_the_end(event) if event.type in TERMINAL_EVENTS else Output()
        report = self._debounce.before(event)
        own = contract_events(event, self._job, left, completes=self._stages.completed_by(event))
        if self._after is not None and event.seq == self._after.seq:
            if event.type == "progress" or self._after.places >= PLACES:
                self._debounce.due()  # the client has seen the held report, too
            return [one for one in own if one.place >= self._after.places]
        if event.type == "progress":
            self._debounce.hold(*own)
            return report
        return report + own

    async def _at_the_end(self, event: Event) -> Output:
        """Read the ended job, its files and last log lines; a job pruned meanwhile gives an empty result."""
        try:
            self._job = await self._state.engine.get(self._job.job_id)
            return await self._left(event)
        except JobNotFound:
            return Output()

    async def _left(self, event: Event) -> Output:
        engine, job_id = self._state.engine, self._job.job_id
        files = [_public_fields(file) for file in await artifacts_of(engine.store, job_id)]
        last = await engine.store.events({job_id: max(0, event.seq - LAST_EVENTS)}, LAST_EVENTS)
        return Output(files, log_lines(last))


def _public_fields(file: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in file.items() if name != "key"}
