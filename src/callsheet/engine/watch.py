"""Watching jobs: a durable cursor for each watcher, a lossy hint to look, one reader for all of them.

A watcher that is slow costs nobody else: it holds a bounded number of events and, when it comes back, is read for
again from its own cursor.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from typing import TYPE_CHECKING

from callsheet.kernel.commands import TERMINAL_EVENTS
from callsheet.kernel.errors import StoreError
from callsheet.store.protocol import Hint
from callsheet.store.tasks import end

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from callsheet.kernel.job import Event
    from callsheet.store.protocol import Store

log = logging.getLogger("callsheet.watch")
POLL_S = 0.5
ROOM = 256


class Watch:
    """All watchers of one process, served by one reader."""

    def __init__(self, store: Store, poll_s: float = POLL_S) -> None:
        self._store = store
        self._poll_s = poll_s
        self._watchers: dict[str, set[_Watcher]] = {}
        self._named: set[str] = set()
        self._look = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def events(self, job_id: str, after: int) -> AsyncIterator[Event]:
        """Events of one job after a `seq` until its terminal one, or until it is pruned or the watch is stopped."""
        watcher = _Watcher(after)
        self._watchers.setdefault(job_id, set()).add(watcher)
        self._want(job_id)
        self._start()
        try:
            while (event := await watcher.take()) is not None:
                if watcher.drained:
                    self._want(job_id)
                yield event
                if event.type in TERMINAL_EVENTS:
                    return
        finally:
            self._watchers[job_id].discard(watcher)
            if not self._watchers[job_id]:
                del self._watchers[job_id]

    async def stop(self) -> None:
        """End the reader and all watchers. May be called twice."""
        await end(*self._tasks)
        self._tasks.clear()
        for watchers in self._watchers.values():
            for watcher in watchers:
                watcher.end()

    def _start(self) -> None:
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._listen())]

    def _want(self, job_id: str) -> None:
        self._named.add(job_id)
        self._look.set()

    async def _listen(self) -> None:
        while True:
            try:
                async for hint in self._store.hints():
                    anyone = hint == Hint() or "*" in hint.jobs
                    self._named |= self._watchers.keys() if anyone else hint.jobs & self._watchers.keys()
                    if self._named:
                        self._look.set()
            except StoreError as error:
                log.warning("hints are away, watchers are polled for: %s", error)
            await asyncio.sleep(self._poll_s)

    async def _read(self) -> None:
        clock = asyncio.get_running_loop().time
        poll_at = clock() + self._poll_s
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(poll_at):
                    await self._look.wait()
            self._look.clear()
            named, self._named = self._named, set()
            everyone = clock() >= poll_at  # also while hints for some keep coming: those of others may be lost
            if everyone:
                poll_at = clock() + self._poll_s
            try:
                await self._deliver(list(self._watchers if everyone else named & self._watchers.keys()))
                if everyone:
                    await self._end_watchers_of_pruned_jobs()
            except StoreError:
                self._named |= named
            except Exception:
                log.exception("a read for watchers failed; the next one tries again")

    async def _end_watchers_of_pruned_jobs(self) -> None:
        idle = [job_id for job_id, watchers in self._watchers.items() if all(w.drained for w in watchers)]
        for job_id, job in zip(idle, await self._store.get(idle) if idle else [], strict=True):
            for watcher in self._watchers.get(job_id, ()) if job is None else ():
                watcher.end()

    async def _deliver(self, jobs: list[str]) -> None:
        """Read once for all watchers of these jobs, from the cursor of the one that is furthest behind."""
        cursors = {
            job_id: min(w.seq for w in watchers if w.room)
            for job_id in jobs
            if (watchers := self._watchers.get(job_id)) and any(w.room for w in watchers)
        }
        if not cursors:
            return
        for event in await self._store.events(cursors, ROOM):
            for watcher in self._watchers.get(event.job_id, ()):
                watcher.give(event)
            if event.seq - cursors[event.job_id] >= ROOM:
                self._want(event.job_id)


class _Watcher:
    """One reader's place: what it was given last, and what it has not taken yet."""

    def __init__(self, after: int) -> None:
        self.seq = after
        self._events: deque[Event] = deque()
        self._ready = asyncio.Event()
        self._ended = False

    @property
    def room(self) -> bool:
        return len(self._events) < ROOM

    @property
    def drained(self) -> bool:
        return not self._events

    def give(self, event: Event) -> None:
        """Take the next event in order; a gap (it had no room) is read for again later."""
        if self.room and event.seq == self.seq + 1:
            self.seq = event.seq
            self._events.append(event)
            self._ready.set()

    def end(self) -> None:
        """No more will come."""
        self._ended = True
        self._ready.set()

    async def take(self) -> Event | None:
        """The next event, None at the end."""
        while not self._events:
            if self._ended:
                return None
            self._ready.clear()
            await self._ready.wait()
        return self._events.popleft()
