"""Parked claims: a worker that waits costs a small object, no connection and no thread. k new jobs wake k waiters.

A hint wakes the one that has waited longest; if it gets a job, it wakes the next. So a thousand that wait for one job
make two claims, not a thousand. Heartbeats that wait for news of their jobs are parked here, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from callsheet.kernel.errors import StoreError
from callsheet.store.protocol import Hint

if TYPE_CHECKING:
    from callsheet.engine import Engine
    from callsheet.kernel.job import Job

log = logging.getLogger("callsheet.http")
POLL_S = (2.0, 4.0)  # hints may be lost, and delayed jobs become due without one
NOTHING: frozenset[str] = frozenset()


class Waiting:
    """All parked requests of a process, with one listener for them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._claims: dict[asyncio.Future[None], frozenset[str]] = {}  # in the order of their coming
        self._beats: dict[asyncio.Future[None], frozenset[str]] = {}
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
        until = clock() + wait_s
        while True:
            if not await alive():
                self._wake(queues)  # what woke us was for somebody who is there
                return []
            jobs = await take()
            if jobs:
                self._wake(queues)  # there may be more than one
            if jobs or clock() >= until or not await self._park(self._claims, queues, until):
                return jobs

    async def news(self, job_ids: frozenset[str], wait_s: float) -> None:
        """Return when one of these jobs may have changed, or after the time."""
        await self._park(self._beats, job_ids, asyncio.get_running_loop().time() + wait_s)

    def wake(self, queues: frozenset[str]) -> None:
        """There are jobs in these queues of which no hint tells: what was handed back, what follows a success."""
        self._wake(self._engine.lanes.heard(queues))

    def let_go(self) -> None:
        """The process goes down: all ask again, elsewhere. May be called twice."""
        for waiting in (*self._tasks, *self._claims, *self._beats):
            waiting.cancel()

    def _begin(self) -> None:
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._poll())]

    async def _park(
        self, among: dict[asyncio.Future[None], frozenset[str]], wanted: frozenset[str], until: float
    ) -> bool:
        """Wait to be woken; False when the time is over or the process goes down."""
        self._begin()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        among[future] = wanted
        try:
            async with asyncio.timeout_at(until):
                await future
        except TimeoutError:
            return False
        except asyncio.CancelledError:
            if not future.cancelled():
                if future.done() and among is self._claims:
                    self._wake(wanted)  # the wake-up was for somebody; pass it on
                raise
            return False
        finally:
            among.pop(future, None)
        return True

    def _wake(self, queues: frozenset[str]) -> None:
        """The first who waits for one of these; no queues mean any."""
        for future, wanted in self._claims.items():
            if not future.done() and (not queues or wanted & queues):
                future.set_result(None)
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
                    if hint.queues or anything:
                        self._wake(self._engine.lanes.heard(hint.queues))
                    if hint.jobs or anything:
                        self._tell(hint.jobs)
            await asyncio.sleep(POLL_S[0])

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(random.uniform(*POLL_S))  # noqa: S311 - jitter
            self._wake(NOTHING)
