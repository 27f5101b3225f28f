"""Parked claims: a worker that waits costs a small object, no connection and no thread. k new jobs wake k waiters.

A hint wakes the one that has waited longest; if it gets a job, it wakes the next. While a woken one asks, further hints
for its queues only ask it to pass them on. So a thousand that wait for one job make two claims, not a thousand. A hint
does not say whose the job is: of workers that are bound to different tenants, the first of each kind is woken.
Heartbeats that wait for news of their jobs are parked here, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from callsheet.http.problems import Problem
from callsheet.kernel.errors import StoreError
from callsheet.kernel.lane import lane_of
from callsheet.store.protocol import Hint

if TYPE_CHECKING:
    from callsheet.engine import Engine
    from callsheet.kernel.job import Job

log = logging.getLogger("callsheet.http")
POLL_S = (2.0, 4.0)  # hints may be lost, and delayed jobs become due without one
MOST_BOUND = 1_000  # claims of workers with one binding to tenants, and as many heartbeats: each holds a connection
RETRY_S = 5


class News(NamedTuple):
    """There are jobs in a queue, '' for any; of one tenant where that is known, '' where it is not."""

    queue: str = ""
    tenant: str = ""


class Wish(NamedTuple):
    """What a parked request waits for: jobs of some queues, and of some tenants, None for all."""

    queues: frozenset[str]
    tenants: frozenset[str] | None = None

    def fits(self, news: News) -> bool:
        """Whether the news may be of a job for it."""
        of_tenant = not news.tenant or self.tenants is None or news.tenant in self.tenants
        return of_tenant and (not news.queue or news.queue in self.queues)


class _Flight:
    """Somebody who was woken and asks now. `again`: what was told meanwhile."""

    def __init__(self, wish: Wish, news: News) -> None:
        self.wish, self.woken_for = wish, news
        self.again: set[News] = set()


class Waiting:
    """All parked requests of a process, with one listener for them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._claims: dict[asyncio.Future[_Flight], Wish] = {}  # in the order of their coming
        self._beats: dict[asyncio.Future[None], frozenset[str]] = {}
        self._beating: Counter[frozenset[str] | None] = Counter()  # how many of these, by the tenants of their workers
        self._flights: set[_Flight] = set()
        self._bindings: Counter[frozenset[str] | None] = Counter()  # how many ask or wait, by their tenants
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def parked(self) -> int:
        """How many wait for jobs."""
        return len(self._claims)

    async def claim(
        self,
        wish: Wish,
        wait_s: float,
        alive: Callable[[], Awaitable[bool]],
        take: Callable[[], Awaitable[list[Job]]],
    ) -> list[Job]:
        """What `take` finds, at once or as soon as there is something. For somebody who has gone it is not asked.

        Raises Problem `too_many_requests` for one too many that waits for jobs of the same tenants.
        """
        if wait_s and _is_full(self._bindings, wish.tenants):
            told = f"{MOST_BOUND} claims of workers like this one wait at this server already; come back in {RETRY_S} s"
            raise Problem("too_many_requests", told, headers={"Retry-After": str(RETRY_S)}, ok=False)
        self._begin()
        self._bindings[wish.tenants] += 1
        try:
            return await self._claim(wish, wait_s, alive, take)
        finally:
            _leave(self._bindings, wish.tenants)

    async def _claim(
        self,
        wish: Wish,
        wait_s: float,
        alive: Callable[[], Awaitable[bool]],
        take: Callable[[], Awaitable[list[Job]]],
    ) -> list[Job]:
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
                self._land(wish, flight, jobs, asked=asked)
            if jobs or clock() >= until:
                return jobs
            flight = await self._park(wish, until)
            if flight is None:
                return jobs

    async def news(self, job_ids: frozenset[str], wait_s: float, tenants: frozenset[str] | None = None) -> bool:
        """Return when one of these jobs may have changed, or after the time; False at once where too many wait."""
        if _is_full(self._beating, tenants):
            return False
        self._begin()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._beats[future] = job_ids
        self._beating[tenants] += 1
        try:
            await asyncio.wait([future], timeout=wait_s)
        finally:
            self._beats.pop(future, None)
            _leave(self._beating, tenants)
            future.cancel()
        return True

    def wake(self, queues: Iterable[str]) -> None:
        """There are jobs in these queues: a hint tells, or what was handed back, or what follows a success."""
        for news in self._news(queues):
            self._wake(news)

    def _news(self, names: Iterable[str]) -> set[News]:
        """What names of queues and of lanes tell: in a tenant's lane are that tenant's jobs alone."""
        names = set(names)
        self._engine.lanes.heard(names)
        lanes = {News(lane.queue, lane.tenant) for lane in map(lane_of, names)}
        return {News(name) for name in names} | lanes

    def let_go(self) -> None:
        """The process goes down: all ask again, elsewhere. May be called twice."""
        waiting: list[asyncio.Future[Any]] = [*self._tasks, *self._claims, *self._beats]
        for one in waiting:
            one.cancel()

    def _begin(self) -> None:
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._poll())]

    async def _park(self, wish: Wish, until: float) -> _Flight | None:
        """Wait to be woken; None when the time is over or the process goes down."""
        future: asyncio.Future[_Flight] = asyncio.get_running_loop().create_future()
        self._claims[future] = wish
        try:
            async with asyncio.timeout_at(until):
                return await future
        except TimeoutError:
            return self._woken(future)
        except asyncio.CancelledError:
            if future.cancelled():
                return None
            self._land(wish, self._woken(future), [], asked=False)
            raise
        finally:
            self._claims.pop(future, None)

    @staticmethod
    def _woken(future: asyncio.Future[_Flight]) -> _Flight | None:
        """The wake-up that came at the last moment."""
        return future.result() if future.done() and not future.cancelled() else None

    def _land(self, wish: Wish, flight: _Flight | None, jobs: list[Job], *, asked: bool) -> None:
        """Somebody has asked: where there was a job there may be more, and what was told meanwhile is passed on.

        Those who may have other tenants' jobs were woken by the same news themselves.
        """
        told = self._news({job.queue for job in jobs})
        if flight is not None:
            self._flights.discard(flight)
            told |= flight.again if asked else {*flight.again, flight.woken_for}
        for news in told:
            self._wake_one(news, wish.tenants)

    def _wake(self, news: News) -> None:
        """For each kind of binding the first who waits for this, unless one of them asks just now."""
        for tenants in list(self._bindings):
            self._wake_one(news, tenants)

    def _wake_one(self, news: News, tenants: frozenset[str] | None) -> None:
        """The first of those with one binding who waits for this; one that asks just now passes the news on."""
        for flight in self._flights:
            if flight.wish.tenants == tenants and flight.wish.fits(news):
                flight.again.add(news)
                return
        for future, wish in self._claims.items():
            if not future.done() and wish.tenants == tenants and wish.fits(news):
                flight = _Flight(wish, news)
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
                    self.wake(hint.queues)
                    if anything:
                        self._wake(News())
                    if hint.jobs or anything:
                        self._tell(hint.jobs)
            await asyncio.sleep(POLL_S[0])

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(random.uniform(*POLL_S))  # noqa: S311 - jitter
            self._wake(News())


def _is_full(counts: Counter[frozenset[str] | None], tenants: frozenset[str] | None) -> bool:
    """Whether so many workers with one binding wait that there are no more; those of operators have no limit."""
    return tenants is not None and counts[tenants] >= MOST_BOUND


def _leave(counts: Counter[frozenset[str] | None], tenants: frozenset[str] | None) -> None:
    counts[tenants] -= 1
    if not counts[tenants]:
        del counts[tenants]
