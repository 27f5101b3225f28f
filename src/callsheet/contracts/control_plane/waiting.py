"""Parked claims: a waiting worker costs a small object, no store connection and no thread. k new jobs wake k claims.

A hint wakes the claim that has waited longest; if that claim gets a job, it wakes the next. While a woken claim asks
the store, further hints for its queues are added to it and passed on afterwards. So 1,000 workers that wait for one
job send the store two claims, not 1,000. A hint does not name the job's tenant: the first claim of each tenant binding
is woken. Heartbeats that wait for changes of their jobs are parked here, too.
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
    """A hint that a queue has new jobs. `queue` '' means any queue; `tenant` '' means the tenant is unknown."""

    queue: str = ""
    tenant: str = ""


class Wish(NamedTuple):
    """The queues and tenants whose jobs a parked claim waits for. `tenants` None means all."""

    queues: frozenset[str]
    tenants: frozenset[str] | None = None

    def fits(self, news: News) -> bool:
        """Return True if the news may announce a job that this claim waits for."""
        of_tenant = not news.tenant or self.tenants is None or news.tenant in self.tenants
        return of_tenant and (not news.queue or news.queue in self.queues)


class _Flight:
    """A woken claim that is asking the store for jobs. `again` collects the news that arrives meanwhile."""

    def __init__(self, wish: Wish, news: News) -> None:
        self.wish, self.woken_for = wish, news
        self.again: set[News] = set()


class Waiting:
    """All parked requests of a process. One hint listener serves all of them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._claims: dict[asyncio.Future[_Flight], Wish] = {}  # in order of arrival
        self._beats: dict[asyncio.Future[None], frozenset[str]] = {}
        self._beating: Counter[frozenset[str] | None] = Counter()  # parked heartbeats by tenant binding
        self._flights: set[_Flight] = set()
        self._bindings: Counter[frozenset[str] | None] = Counter()  # open claims by tenant binding
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def parked_count(self) -> int:
        """Return the number of claims that are parked for jobs."""
        return len(self._claims)

    async def claim(
        self,
        wish: Wish,
        wait_s: float,
        alive: Callable[[], Awaitable[bool]],
        take: Callable[[], Awaitable[list[Job]]],
    ) -> list[Job]:
        """Return the jobs that `take` finds, now or within `wait_s`. `take` is not called once `alive` returns False.

        Raises Problem `too_many_requests` if MOST_BOUND claims with the same tenant binding are open already.
        """
        if wait_s and _is_full(self._bindings, wish.tenants):
            message = (
                f"{MOST_BOUND} claims of workers like this one wait at this server already; come back in {RETRY_S} s"
            )
            raise Problem("too_many_requests", message, headers={"Retry-After": str(RETRY_S)}, ok=False)
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
            jobs, has_asked = [], False
            try:
                if not await alive():
                    return []
                jobs = await take()
                has_asked = True
            finally:
                self._land(wish, flight, jobs, has_asked=has_asked)
            if jobs or clock() >= until:
                return jobs
            flight = await self._park(wish, until)
            if flight is None:
                return jobs

    async def news(self, job_ids: frozenset[str], wait_s: float, tenants: frozenset[str] | None = None) -> bool:
        """Wait `wait_s` at most for a possible change of these jobs; returns False if too many heartbeats wait."""
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
        """Wake parked claims because these queues have jobs: after a hint, a released job or new follow-up jobs."""
        for news in self._news(queues):
            self._wake(news)

    def _news(self, names: Iterable[str]) -> set[News]:
        """Return the news of queue and lane names. A tenant's lane holds only that tenant's jobs."""
        names = set(names)
        self._engine.lanes.note_work(names)
        lanes = {News(lane.queue, lane.tenant) for lane in map(lane_of, names)}
        return {News(name) for name in names} | lanes

    def let_go(self) -> None:
        """Cancel all parked requests as the process stops; workers then ask another server. Safe to call twice."""
        waiting: list[asyncio.Future[Any]] = [*self._tasks, *self._claims, *self._beats]
        for one in waiting:
            one.cancel()

    def _begin(self) -> None:
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._poll())]

    async def _park(self, wish: Wish, until: float) -> _Flight | None:
        """Wait to be woken; returns None when the time is over or the process stops."""
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
            self._land(wish, self._woken(future), [], has_asked=False)
            raise
        finally:
            self._claims.pop(future, None)

    @staticmethod
    def _woken(future: asyncio.Future[_Flight]) -> _Flight | None:
        """Return the flight that arrived together with the timeout or cancellation, if any."""
        return future.result() if future.done() and not future.cancelled() else None

    def _land(self, wish: Wish, flight: _Flight | None, jobs: list[Job], *, has_asked: bool) -> None:
        """End a woken claim's request to the store: pass on collected news, and wake the next claim if it got a job.

        Claims with other tenant bindings were woken by the same news themselves.
        """
        news_to_pass = self._news({job.queue for job in jobs})
        if flight is not None:
            self._flights.discard(flight)
            news_to_pass |= flight.again if has_asked else {*flight.again, flight.woken_for}
        for news in news_to_pass:
            self._wake_one(news, wish.tenants)

    def _wake(self, news: News) -> None:
        """For each tenant binding, wake the first matching claim, or add the news to a claim that is awake."""
        for tenants in list(self._bindings):
            self._wake_one(news, tenants)

    def _wake_one(self, news: News, tenants: frozenset[str] | None) -> None:
        """Wake the first matching claim of this tenant binding. A matching claim already awake gets the news."""
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
        for future, wanted_ids in self._beats.items():
            if not future.done() and (not job_ids or "*" in job_ids or wanted_ids & job_ids):
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
    """Return True if MOST_BOUND requests with this tenant binding are open. Operators' workers have no limit."""
    return tenants is not None and counts[tenants] >= MOST_BOUND


def _leave(counts: Counter[frozenset[str] | None], tenants: frozenset[str] | None) -> None:
    counts[tenants] -= 1
    if not counts[tenants]:
        del counts[tenants]
