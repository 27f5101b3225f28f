"""Virtual time: a clock that only tests move, and a store that uses this clock and records created and ended jobs."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from callsheet.kernel.durations import Duration, milliseconds
from callsheet.kernel.errors import InvalidInput
from callsheet.kernel.wire import decode
from callsheet.store.protocol import Hint, Settled

if TYPE_CHECKING:
    from callsheet.kernel.job import Job, NewJob
    from callsheet.kernel.settlement import Settlement
    from callsheet.store.protocol import ClaimRequest, Enqueued, Store

log = logging.getLogger("callsheet.testing")
LOOK_S = 0.005


class Clock:
    """The store's time. The clock starts at the real time or at `at`, and moves only through calls."""

    def __init__(self, at: datetime | None = None) -> None:
        if at is not None and at.tzinfo is None:
            raise InvalidInput("the clock's time has no time zone; use datetime(…, tzinfo=UTC)")
        self.ms = round((at or datetime.now(UTC)).timestamp() * 1000)

    def now(self) -> datetime:
        """Return the virtual time in UTC."""
        return datetime.fromtimestamp(self.ms / 1000, UTC)

    def move(self, duration: Duration) -> None:
        """Move the clock without running jobs; tests usually need `Harness.advance`."""
        self.ms += milliseconds(duration)


class VirtualStore:
    """A store whose methods use the clock's time by default, and that records created and ended jobs for tests."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.created_jobs: list[NewJob] = []
        self.ended_ids: list[str] = []
        self.cancelled_ids: set[str] = set()
        self.moves = 0

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        if not callable(verb) or "now" not in inspect.signature(verb).parameters:
            return verb

        def at_virtual_time(*args: Any, now: int | None = None, **kwargs: Any) -> Any:
            return verb(*args, now=self._clock.ms if now is None else now, **kwargs)

        return at_virtual_time

    async def now(self) -> int:
        """Return the virtual time in milliseconds."""
        return self._clock.ms

    async def enqueue(
        self,
        batch: Sequence[NewJob],
        *,
        depth_limit: int | None = None,
        quotas: Mapping[str, int] | None = None,
        now: int | None = None,
    ) -> list[Enqueued]:
        """Create jobs, and record the new jobs."""
        at = self._clock.ms if now is None else now
        answers = await self._store.enqueue(batch, depth_limit=depth_limit, quotas=quotas, now=at)
        self._remember([new for new, answer in zip(batch, answers, strict=True) if answer.created])
        return answers

    async def claim(self, request: ClaimRequest, *, now: int | None = None) -> list[Job]:
        """Claim jobs; each claim counts as a move."""
        jobs = await self._store.claim(request, now=self._clock.ms if now is None else now)
        self.moves += len(jobs)
        return jobs

    async def settle(self, settlements: Sequence[Settlement], *, now: int | None = None) -> list[Settled]:
        """Apply settlements, record created and ended jobs, and log failed attempts."""
        answers = await self._store.settle(settlements, now=self._clock.ms if now is None else now)
        moves = [s for s, answer in zip(settlements, answers, strict=True) if answer is Settled.APPLIED]
        self.moves += len(moves)
        for settlement in moves:
            self._remember(settlement.follow_ups)
            if settlement.status.terminal:
                self.ended_ids.append(settlement.job_id)
            if settlement.cancel_reason is not None:
                self.cancelled_ids.add(settlement.job_id)
            if settlement.error is not None:
                log.warning("job %s: its attempt failed: %s", settlement.job_id, error_text(settlement.error))
        return answers

    def _remember(self, jobs: Sequence[NewJob]) -> None:
        self.created_jobs += jobs
        self.moves += len(jobs)


class Elsewhere:
    """The store for code on another event loop (`app.sync`, a test client): calls run on the store's own loop."""

    def __init__(self, store: VirtualStore, home: asyncio.AbstractEventLoop) -> None:
        self._store = store
        self._home = home

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        if not callable(verb):
            return verb

        async def at_home(*args: Any, **kwargs: Any) -> Any:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(verb(*args, **kwargs), self._home))

        return at_home

    async def close(self) -> None:
        """Do nothing: the harness closes the store."""

    async def hints(self) -> AsyncIterator[Hint]:
        """Yield an empty hint every 5 ms, so that callers poll: hints do not cross event loops."""
        while True:
            await asyncio.sleep(LOOK_S)
            yield Hint()


def error_text(error: str) -> str:
    """Format a stored error for a log: the traceback if present, else code and message."""
    found = decode(error)
    trace = (found.get("details") or {}).get("traceback")
    return f"\n{trace}" if trace else f"{found.get('code')}: {found.get('message')}"
