"""The contract's stream: its events, at most two reports of progress a second, and a comment with the time.

Progress within half a second of the last report is held back; the newest is told when that time is over, or before
any other event. So the last one is never lost.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from callsheet.http.sse import EventStream, frame
from callsheet.kernel.commands import TERMINAL_EVENTS
from callsheet.kernel.errors import CallsheetError, JobNotFound

from ..control_plane.artifacts import adopted  # noqa: TID252 - the files of a job, whoever made them
from .projection import Left, Place, Told, log_lines, told

if TYPE_CHECKING:
    from callsheet.engine.watch import Watcher
    from callsheet.http.keys import Principal
    from callsheet.http.site import Site
    from callsheet.kernel.job import Event, Job

KEEPALIVE_S = 10.0
DEBOUNCE_S = 0.5
LAST_EVENTS = 200  # of a job that has ended, to find the lines of its log in


class LiveStream(EventStream):
    """One connection of one client to one job. `first` is what it is told before all else."""

    def __init__(  # noqa: PLR0913, PLR0917 - what one connection is
        self, site: Site, who: Principal, first: bytes, watcher: Watcher, job: Job, after: Place | None
    ) -> None:
        super().__init__(site, who, first, watcher)
        self.ping_s, self.steady = KEEPALIVE_S, True
        self._job, self._after = job, after
        self._held: Told | None = None
        self._last_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

    def ping(self) -> bytes:
        """The contract's keepalive."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return f": keepalive: {now}\n\n".encode()

    async def frames(self, events: list[Event]) -> bytes:
        """The contract's frames for these events, and what was held back and is due."""
        written: list[bytes] = []
        for event in events:
            for found in await self._told(event):
                if found.type == "step-progress":
                    self._held = found
                    continue
                self._flush(written)
                written.append(frame(found.type, found.data, found.id))
        clock = asyncio.get_running_loop().time
        if self._held is not None and clock() - self._last_at >= DEBOUNCE_S:
            self._flush(written)
            self._last_at = clock()
        elif self._held is not None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._last_at + DEBOUNCE_S - clock(), self._wake)
        return b"".join(written)

    def _flush(self, written: list[bytes]) -> None:
        if self._held is not None:
            written.append(frame(self._held.type, self._held.data, self._held.id))
            self._held = None

    def _wake(self) -> None:
        self._timer = None
        self._watcher.poke()

    async def _told(self, event: Event) -> list[Told]:
        """An event in the contract's words; of the one that the client stood at, the rest."""
        left = Left()
        if event.type in TERMINAL_EVENTS:
            try:
                self._job = await self._site.engine.get(self._job.job_id)
                left = await self._left(event)
            except JobNotFound:
                pass  # it was pruned a moment ago
            except CallsheetError:
                message = "the store cannot be reached now; connect again"
                return [Told("", "error", {"message": message, "correlationId": self._job.correlation_id})]
        found = told(event, self._job, left)
        if self._after is not None and event.seq == self._after.seq:
            return found[self._after.told :]
        return found

    async def _left(self, event: Event) -> Left:
        engine, job_id = self._site.engine, self._job.job_id
        files = [_shown(file) for file in await adopted(engine, job_id)]
        last = await engine.store.events({job_id: max(0, event.seq - LAST_EVENTS)}, LAST_EVENTS)
        return Left(files, log_lines(last))


def _shown(file: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in file.items() if name != "key"}
