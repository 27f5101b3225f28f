"""Parked claims: a worker that waits costs a small object, no connection and no thread. k new jobs wake k waiters.

A hint wakes the one that has waited longest; if it gets a job, it wakes the next. While a woken one asks, further hints
for its queues only ask it to pass them on. So a thousand that wait for one job make two claims, not a thousand.
Heartbeats that wait for news of their jobs are parked here, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from callsheet.kernel.errors import StoreError
from callsheet.store.protocol import Hint

if TYPE_CHECKING:
    from callsheet.engine import Engine
    from callsheet.kernel.job import Job

log = logging.getLogger("callsheet.http")
POLL_S = (2.0, 4.0)  # hints may be lost, and delayed jobs become due without one


class _Flight:
    """Somebody who was woken for some queues and asks now. `again`: queues of which was told meanwhile."""

    def __init__(self, wanted: frozenset[str], queue: str) -> None:
        self.wanted, self.woken_for = wanted, queue
        self.again: set[str] = set()


class Waiting:
    """All parked requests of a process, with one listener for them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._claims: dict[asyncio.Future[_Flight], frozenset[str]] = {}  # in the order of their coming
        self._beats: dict[asyncio.Future[None], frozenset[str]] = {}
        self._flights: set[_Flight] = set()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def parked(self) -> int:
        """How many wait for jobs."""
        return len(self._claims)

    async def claim(
        self,
        queues: frozenset[str],
        wait_s: float,
        alive: Callable[[], Awaitable[bool]],
        take: Callable[[], Awaitable[list[Job]]],
    ) -> list[Job]:
        """What `take` finds, at once or as soon as there is something. For somebody who has gone it is not asked."""
        self._begin()
        clock = asyncio.get_running_loop().time
        until, flight = clock() + wait_s, None
        while True:
            jobs, asked = [], False
            try:
                if not await alive():
                    return []
                jobs = await take()
                asked = True
            finally:
                self._land(flight, jobs, asked=asked)
            if jobs or clock() >= until:
                return jobs
            flight = await self._park(queues, until)
            if flight is None:
                return jobs

    async def news(self, job_ids: frozenset[str], wait_s: float) -> None:
        """Return when one of these jobs may have changed, or after the time."""
        self._begin()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._beats[future] = job_ids
        try:
            await asyncio.wait([future], timeout=wait_s)
        finally:
            self._beats.pop(future, None)
            future.cancel()

    def wake(self, queues: Iterable[str]) -> None:
        """There are jobs in these queues: a hint tells, or what was handed back, or what follows a success."""
        for queue in self._engine.lanes.heard(queues):
            self._wake(queue)

    def let_go(self) -> None:
        """The process goes down: all ask again, elsewhere. May be called twice."""
        waiting: list[asyncio.Future[Any]] = [*self._tasks, *self._claims, *self._beats]
        for one in waiting:
            one.cancel()

    def _begin(self) -> None:
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._poll())]

    async def _park(self, queues: frozenset[str], until: float) -> _Flight | None:
        """Wait to be woken; None when the time is over or the process goes down."""
        future: asyncio.Future[_Flight] = asyncio.get_running_loop().create_future()
        self._claims[future] = queues
        try:
            async with asyncio.timeout_at(until):
                return await future
        except TimeoutError:
            return self._woken(future)
        except asyncio.CancelledError:
            if future.cancelled():
                return None
            self._land(self._woken(future), [], asked=False)
            raise
        finally:
            self._claims.pop(future, None)

    @staticmethod
    def _woken(future: asyncio.Future[_Flight]) -> _Flight | None:
        """The wake-up that came at the last moment."""
        return future.result() if future.done() and not future.cancelled() else None

    def _land(self, flight: _Flight | None, jobs: list[Job], *, asked: bool) -> None:
        """Somebody has asked: where there was a job there may be more, and what was told meanwhile is passed on."""
        told = {job.queue for job in jobs}
        if flight is not None:
            self._flights.discard(flight)
            told |= flight.again if asked else {*flight.again, flight.woken_for}
        if told:
            self.wake(told)

    def _wake(self, queue: str) -> None:
        """The first who waits for a queue ('' is any), unless one of them asks just now: it passes the news on."""
        for flight in self._flights:
            if not queue or queue in flight.wanted:
                flight.again.add(queue)
                return
        for future, wanted in self._claims.items():
            if not future.done() and (not queue or queue in wanted):
                flight = _Flight(wanted, queue)
                self._flights.add(flight)
                future.set_result(flight)
                return

    def _tell(self, job_ids: frozenset[str]) -> None:
        for future, wanted in self._beats.items():
            if not future.done() and (not job_ids or "*" in job_ids or wanted & job_ids):
                future.set_result(None)

    async def _listen(self) -> None:
        while True:
            with contextlib.suppress(StoreError):
                async for hint in self._engine.hints():
                    anything = hint == Hint()
                    self.wake(hint.queues or ([""] if anything else []))
                    if hint.jobs or anything:
                        self._tell(hint.jobs)
            await asyncio.sleep(POLL_S[0])

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(random.uniform(*POLL_S))  # noqa: S311 - jitter
            self._wake("")
