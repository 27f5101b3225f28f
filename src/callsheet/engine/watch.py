"""Watching jobs: a durable cursor per watcher and job, lossy hints to read, one reader for all watchers.

A slow watcher delays no other watcher: it holds a bounded number of events, and later reads resume from its own
cursors.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Mapping

from callsheet.kernel.errors import StoreError
from callsheet.kernel.events import TERMINAL_EVENTS
from callsheet.kernel.job import Event
from callsheet.store.protocol import Hint, Store
from callsheet.store.tasks import end

log = logging.getLogger("callsheet.watch")
POLL_S = 0.5
ROOM = 256
IN_LINE = frozenset(
    {"queued", "retrying", "released", "waiting", "lease_lost", "requeued"}
)  # after these events any worker may take the job


class Watch:
    """All watchers of one process, served by one reader."""

    def __init__(self, store: Store, poll_s: float = POLL_S) -> None:
        self._store = store
        self._poll_s = poll_s
        self._watchers: dict[str, set[Watcher]] = {}
        self._hint_ids: set[str] = set()
        self._with_others: dict[str, None] = {}  # jobs whose next event may come from a foreign program
        self._others_changed = False
        self._look = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def follow(self, after: Mapping[str, int], *, open_ended: bool = False) -> Watcher:
        """Return a watcher of these jobs, each after a `seq`; `open_ended` watchers outlive their jobs.

        Close it after use.
        """
        self._start()
        watcher = Watcher(self, open_ended=open_ended)
        for job_id, seq in after.items():
            watcher.follow(job_id, seq)
        return watcher

    async def events(self, job_id: str, after: int) -> AsyncIterator[Event]:
        """Yield events of one job after a `seq`, until the terminal event, the job's deletion, or the watch's stop."""
        watcher = self.follow({job_id: after})
        try:
            while events := await watcher.take():
                for event in events:
                    yield event
        finally:
            watcher.close()

    async def stop(self) -> None:
        """End the reader and all watchers. May be called twice."""
        await end(*self._tasks)
        self._tasks.clear()
        for watchers in self._watchers.values():
            for watcher in watchers:
                watcher.end()

    def want(self, job_id: str) -> None:
        """Request a read of this job's events."""
        self._hint_ids.add(job_id)
        self._look.set()

    def add(self, job_id: str, watcher: Watcher) -> None:
        """Start serving a watcher of a job."""
        self._watchers.setdefault(job_id, set()).add(watcher)
        self._is_with_others(job_id, maybe=True)
        self.want(job_id)

    def remove(self, job_id: str, watcher: Watcher) -> None:
        """Stop serving a watcher of a job."""
        watchers = self._watchers.get(job_id, set())
        watchers.discard(watcher)
        if not watchers:
            self._watchers.pop(job_id, None)
            self._is_with_others(job_id, maybe=False)

    def _is_with_others(self, job_id: str, *, maybe: bool) -> None:
        """Record whether the store must look for foreign events of a job."""
        if maybe is not (job_id in self._with_others):
            self._others_changed = True
            if maybe:
                self._with_others[job_id] = None
            else:
                del self._with_others[job_id]

    def _start(self) -> None:
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._listen())]

    async def _listen(self) -> None:
        while True:
            try:
                async for hint in self._store.hints():
                    anyone = hint == Hint() or "*" in hint.jobs
                    self._hint_ids |= self._watchers.keys() if anyone else hint.jobs & self._watchers.keys()
                    if self._hint_ids:
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
            job_ids, self._hint_ids = self._hint_ids, set()
            everyone = clock() >= poll_at  # also while hints for some jobs keep coming: hints for others may be lost
            try:
                await self._deliver(list(self._watchers if everyone else job_ids & self._watchers.keys()))
                if everyone:
                    await self._end_watchers_of_pruned_jobs()
                if self._others_changed:
                    self._others_changed = False
                    await self._store.listen_for(self._with_others)
            except StoreError:
                self._hint_ids |= job_ids
            except Exception:
                log.exception("a read for watchers failed; the next one tries again")
            if everyone:  # many idle watchers are polled less often, since hints rarely fail
                poll_at = clock() + self._poll_s * min(10.0, max(1.0, len(self._watchers) / 200))

    async def _end_watchers_of_pruned_jobs(self) -> None:
        idle = [job_id for job_id, watchers in self._watchers.items() if all(w.is_drained for w in watchers)]
        for job_id, job in zip(idle, await self._store.get(idle) if idle else [], strict=True):
            for watcher in list(self._watchers.get(job_id, ())) if job is None else ():
                watcher.over(job_id)

    async def _deliver(self, jobs: list[str]) -> None:
        """Read events once for all watchers of these jobs, from the cursor of the slowest watcher."""
        cursors = {
            job_id: min(w.seqs[job_id] for w in watchers if w.room)
            for job_id in jobs
            if (watchers := self._watchers.get(job_id)) and any(w.room for w in watchers)
        }
        if not cursors:
            return
        for event in await self._store.events(cursors, ROOM):
            for watcher in list(self._watchers.get(event.job_id, ())):
                watcher.give(event)
            if event.job_id in self._watchers:
                self._is_with_others(event.job_id, maybe=bool(event.raw_id) or event.type in IN_LINE)
            if event.seq - cursors[event.job_id] >= ROOM:
                self.want(event.job_id)


class Watcher:
    """One reader's position in each watched job: the last event given, and the events not taken yet."""

    def __init__(self, watch: Watch, *, open_ended: bool) -> None:
        self.seqs: dict[str, int] = {}
        self._watch = watch
        self._open_ended = open_ended
        self._events: deque[Event] = deque()
        self._ready = asyncio.Event()
        self.has_ended = self._is_poked = False

    @property
    def room(self) -> bool:
        """Whether the consumer has taken enough events for the watcher to read more."""
        return len(self._events) < ROOM

    @property
    def is_drained(self) -> bool:
        """Whether the reader has taken all events."""
        return not self._events

    def follow(self, job_id: str, after: int) -> None:
        """Add a job to this watcher."""
        self.seqs[job_id] = after
        self._watch.add(job_id, self)

    def give(self, event: Event) -> None:
        """Store the next event in order; events after a gap are read again later."""
        if self.room and event.seq == self.seqs[event.job_id] + 1:
            self.seqs[event.job_id] = event.seq
            self._events.append(event)
            self._ready.set()
            if event.type in TERMINAL_EVENTS:
                self.over(event.job_id)

    def over(self, job_id: str) -> None:
        """End one job: no further events follow."""
        self._watch.remove(job_id, self)
        self.seqs.pop(job_id, None)
        if not self.seqs and not self._open_ended:
            self.end()

    def end(self) -> None:
        """End the watcher: no further events follow."""
        self.has_ended = True
        self._ready.set()

    def poke(self) -> None:
        """Wake the reader without an event."""
        self._is_poked = True
        self._ready.set()

    async def take(self) -> list[Event]:
        """Return the events since the last call; an empty list at the end, or after a poke.

        Cancelling this call loses no events.
        """
        while not self._events:
            if self.has_ended or self._is_poked:
                self._is_poked = False
                return []
            self._ready.clear()
            await self._ready.wait()
        events = list(self._events)
        self._events.clear()
        for job_id in {event.job_id for event in events} & self.seqs.keys() if len(events) == ROOM else ():
            self._watch.want(job_id)  # the watcher was full: there may be more events
        return events

    def close(self) -> None:
        """Stop all jobs of this watcher, for a reader that has left."""
        for job_id in list(self.seqs):
            self._watch.remove(job_id, self)
        self.seqs.clear()
        self.end()
