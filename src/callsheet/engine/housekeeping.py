"""Housekeeping keeps a store in order. Each chore is idempotent, so many processes may run housekeeping at once."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import random
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from callsheet.kernel import commands
from callsheet.kernel.errors import CallsheetError, StoreError
from callsheet.kernel.job import Job
from callsheet.kernel.settlement import Settlement
from callsheet.store.clock import TOLERANCE_MS
from callsheet.store.protocol import Settled
from callsheet.store.tasks import end, wait

from .clock import ClockWatch, Sight
from .schedules import fire_due
from .silent_workers import lost_early

if TYPE_CHECKING:
    from .engine import Engine

log = logging.getLogger("callsheet.housekeeping")
DAY_MS = 86_400_000
AUDIT_EACH = 60  # sweeps
LAST_SWEEP_S = 2.0  # a longer sweep is cancelled: any process can do the rest
AWAY_S = 2.0  # after this long without the store, workers may have lost it too
RESPITE_S = 3.0  # the time that workers then have to send heartbeats


class Chores(NamedTuple):
    """The interval and size of sweeps. `retention_ms` keeps ended jobs that long, `audit_ms` entries of the audit log.

    `audit_ms` None leaves the audit log alone: servers prune it, since they have the setting for its age.
    """

    sweep_s: float = 1.0
    retention_ms: int = 7 * DAY_MS
    batch: int = 500
    audit_ms: int | None = None


class Swept(NamedTuple):
    """Counts of one sweep."""

    promoted: int = 0
    reaped: int = 0
    cancelled: int = 0
    fired: int = 0
    pruned: int = 0


class Housekeeping:
    """Watch the clock, reap lost leases, free or cancel dependents, promote due jobs, fire schedules, prune."""

    def __init__(self, engine: Engine, chores: Chores | None = None, clock: ClockWatch | None = None) -> None:
        self._engine = engine
        self._clock = clock or ClockWatch(engine.store)
        self._chores = chores or Chores()
        self._stopping = asyncio.Event()
        self._sweeps = 0
        self._swept_at = math.inf  # by the monotonic clock
        self._rests_until: float | None = None
        self._was_refused = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=LAST_SWEEP_S)
            await end(self._task)

    async def run(self) -> None:
        """Sweep until stopped, at jittered times so that processes do not sweep in step."""
        while not self._stopping.is_set():
            try:
                await self.sweep()
                self._swept_at = time.monotonic()
            except StoreError as error:
                self._was_refused = True
                log.warning("housekeeping waits for the store: %s", error)
            except Exception:
                log.exception("a sweep failed; the next one tries again")
            pause = self._chores.sweep_s * random.uniform(0.75, 1.25)  # noqa: S311 - not for secrets
            await wait(self._stopping, pause)

    def stop(self) -> None:
        """End after the present sweep. May be called twice."""
        self._stopping.set()

    async def sweep(self, *, now: int | None = None) -> Swept:
        """Run all chores once. The clock comes first: leases that only seem expired after a step are not reaped.

        The retention of ended jobs is extended by the time that the clock may be ahead. With `now` the clock is not
        checked.
        """
        store = self._engine.store
        sight = await self._look() if now is None else Sight(now)
        at = sight.at - sight.ahead_ms
        await self._prune_audit(at)
        return Swept(
            promoted=await store.promote(now=now),
            reaped=await self.reap(seen_at=sight.at, now=now) if sight.certain else 0,
            cancelled=await self.cancel_broken(now=now),
            fired=await fire_due(store, now=now),
            pruned=await store.prune(ended_before=at - self._chores.retention_ms, limit=self._chores.batch, now=now),
        )

    def _is_acquainted(self) -> bool:
        """Return whether the store was reachable long enough for living workers to extend their leases.

        After an outage heartbeats and outcomes come first, so that jobs lose no attempt. A sweep that was merely late
        does not start a second grace period, or a slow machine would never reap.
        """
        now = time.monotonic()
        is_back = now - self._swept_at > self._chores.sweep_s * 1.25 + AWAY_S
        if is_back and (self._rests_until is None or self._was_refused):
            self._rests_until, self._was_refused = now + RESPITE_S, False
        if self._rests_until is not None and now < self._rests_until:
            return False
        self._rests_until = None
        return True

    async def _look(self) -> Sight:
        """Return the clock's state; if waiting times cannot be moved now, all chores except reaping continue."""
        try:
            sight = await self._clock.look()
        except StoreError as error:
            at = await self._engine.store.now()
            log.warning("a step of the clock cannot be seen to now, no lease is reaped until it can: %s", error)
            return Sight(at, certain=False)
        return sight if self._is_acquainted() else sight._replace(certain=False)

    async def _prune_audit(self, at: int) -> None:
        """Delete old entries of the audit log, every 60 sweeps."""
        self._sweeps += 1
        if self._chores.audit_ms is not None and self._sweeps % AUDIT_EACH == 1:
            await self._engine.store.audit_prune(before=at - self._chores.audit_ms, limit=10 * self._chores.batch)

    async def reap(self, *, seen_at: int | None = None, now: int | None = None) -> int:
        """Take jobs from silent workers; the kernel decides each job's next status. Returns how many this process took.

        `seen_at` is the time of the last look at the clock: a later lease end may be the effect of a step since then.
        """
        total = 0
        while jobs := await self._jobs_to_reap(seen_at, now):
            early = await lost_early(self._engine.store, jobs)
            count = await self._settle_each(jobs, functools.partial(_lose_lease, early), now)
            total += count
            if len(jobs) < self._chores.batch or not count:
                break
        return total

    async def _jobs_to_reap(self, seen_at: int | None, now: int | None) -> list[Job]:
        jobs = await self._engine.store.with_expired_lease(self._chores.batch, now=now)
        if seen_at is None:
            return jobs
        return [job for job in jobs if (job.lease_expires_at or 0) <= seen_at + TOLERANCE_MS]

    async def cancel_broken(self, *, now: int | None = None) -> int:
        """Cancel jobs with a failed dependency, and then the jobs that depend on them."""
        total = 0
        while jobs := await self._engine.store.with_failed_dependency(self._chores.batch):
            count = await self._settle_each(jobs, _cancel_broken, now)
            total += count
            if not count:
                break
        return total

    async def _settle_each(self, jobs: Sequence[Job], decide: Callable[[Job], Settlement], now: int | None) -> int:
        settlements = []
        for job in jobs:
            try:
                settlements.append(decide(job))
            except CallsheetError as error:
                log.warning("housekeeping cannot move job %s: %s", job.job_id, error)
        answers = await self._engine.settle(settlements, now=now) if settlements else []
        return answers.count(Settled.APPLIED)


def _lose_lease(early: frozenset[str], job: Job) -> Settlement:
    rand = random.random()  # noqa: S311 - jitter, not a secret
    return commands.lose_lease(job, rand=rand, has_begun=job.job_id not in early)


def _cancel_broken(job: Job) -> Settlement:
    return commands.cancel(job, f"job {job.broken_by}, which it depends on, did not succeed")
