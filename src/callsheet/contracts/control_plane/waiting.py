"""Parked claims: a worker that waits costs a small object, no connection and no thread. k new jobs wake k waiters.

A hint wakes the one that has waited longest; if it gets a job, it wakes the next. So a thousand that wait for one job
make two claims, not a thousand.
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
    from callsheet.store.protocol import ClaimRequest

log = logging.getLogger("callsheet.http")
POLL_S = (2.0, 4.0)  # hints may be lost, and delayed jobs become due without one


class Waiting:
    """All parked claims of a process, with one listener for them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._parked: dict[asyncio.Future[None], frozenset[str]] = {}  # in the order of their coming
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def parked(self) -> int:
        """How many wait."""
        return len(self._parked)

    async def claim(self, request: ClaimRequest, wait_s: float, alive: Callable[[], Awaitable[bool]]) -> list[Job]:
        """Jobs at once, or as soon as there are some, or none. Somebody who has gone is given none."""
        clock = asyncio.get_running_loop().time
        until = clock() + wait_s
        while True:
            jobs = await self._engine.claim(request) if await alive() else []
            if jobs:
                self._wake(frozenset(request.queues))  # there may be more than one
            if jobs or clock() >= until or not await self._park(frozenset(request.queues), until):
                return jobs

    def let_go(self) -> None:
        """The process goes down: all ask again, elsewhere. May be called twice."""
        for waiting in (*self._tasks, *self._parked):
            waiting.cancel()

    async def _park(self, queues: frozenset[str], until: float) -> bool:
        """Wait to be woken; False when the time is over or the process goes down."""
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._poll())]
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._parked[future] = queues
        try:
            async with asyncio.timeout_at(until):
                await future
        except TimeoutError:
            return False
        except asyncio.CancelledError:
            if not future.cancelled():
                if future.done():
                    self._wake(queues)  # the wake-up was for somebody; pass it on
                raise
            return False
        finally:
            self._parked.pop(future, None)
        return True

    def _wake(self, queues: frozenset[str]) -> None:
        """The first who waits for one of these; no queues mean any."""
        for future, wanted in self._parked.items():
            if not future.done() and (not queues or wanted & queues):
                future.set_result(None)
                return

    async def _listen(self) -> None:
        while True:
            with contextlib.suppress(StoreError):
                async for hint in self._engine.store.hints():
                    if hint.queues or hint == Hint():
                        self._wake(hint.queues)
            await asyncio.sleep(POLL_S[0])

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(random.uniform(*POLL_S))  # noqa: S311 - jitter
            self._wake(frozenset())
