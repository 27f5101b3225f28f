"""Housekeeping: what keeps a store in order. Any number of processes may run it at once; each step is idempotent."""

from __future__ import annotations

import asyncio
import functools
import logging
import random
from typing import TYPE_CHECKING, NamedTuple, Self

from callsheet.kernel import commands
from callsheet.kernel.errors import CallsheetError, StoreError
from callsheet.store.protocol import Settled
from callsheet.store.tasks import wait

from .begun import lost_early
from .schedules import fire_due

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from callsheet.kernel.job import Job
    from callsheet.kernel.settlement import Settlement

    from .engine import Engine

log = logging.getLogger("callsheet.housekeeping")
DAY_MS = 86_400_000
AUDIT_EACH = 60  # sweeps


class Chores(NamedTuple):
    """How often and how much. `retention_ms` is how long an ended job is kept, `audit_ms` an entry of the audit log.

    None leaves the audit log alone: servers prune it, for they are told for how long it is kept.
    """

    sweep_s: float = 1.0
    retention_ms: int = 7 * DAY_MS
    batch: int = 500
    audit_ms: int | None = None


class Swept(NamedTuple):
    """What one sweep did."""

    promoted: int = 0
    reaped: int = 0
    cancelled: int = 0
    fired: int = 0
    pruned: int = 0


class Housekeeping:
    """Reap lost leases, free or cancel dependents, bring due jobs into line, fire schedules, prune."""

    def __init__(self, engine: Engine, chores: Chores | None = None) -> None:
        self._engine = engine
        self._chores = chores or Chores()
        self._stopping = asyncio.Event()
        self._sweeps = 0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._task is not None:
            await self._task

    async def run(self) -> None:
        """Sweep until stopped, at jittered times so that many processes do not march in step."""
        while not self._stopping.is_set():
            try:
                await self.sweep()
            except StoreError as error:
                log.warning("housekeeping waits for the store: %s", error)
            except Exception:
                log.exception("a sweep failed; the next one tries again")
            pause = self._chores.sweep_s * random.uniform(0.75, 1.25)  # noqa: S311 - not for secrets
            await wait(self._stopping, pause)

    def stop(self) -> None:
        """End after the present sweep. May be called twice."""
        self._stopping.set()

    async def sweep(self, *, now: int | None = None) -> Swept:
        """All chores once."""
        store = self._engine.store
        at = await store.now() if now is None else now
        await self._prune_audit(at)
        return Swept(
            promoted=await store.promote(now=now),
            reaped=await self.reap(now=now),
            cancelled=await self.cancel_broken(now=now),
            fired=await fire_due(store, now=now),
            pruned=await store.prune(ended_before=at - self._chores.retention_ms, limit=self._chores.batch, now=now),
        )

    async def _prune_audit(self, at: int) -> None:
        """Delete old entries of the audit log, now and then: a minute more or less does not matter."""
        self._sweeps += 1
        if self._chores.audit_ms is not None and self._sweeps % AUDIT_EACH == 1:
            await self._engine.store.audit_prune(before=at - self._chores.audit_ms, limit=10 * self._chores.batch)

    async def reap(self, *, now: int | None = None) -> int:
        """Take jobs from workers that went silent; the kernel says where each goes. How many this process took."""
        total = 0
        while expired := await self._engine.store.expired(self._chores.batch, now=now):
            early = await lost_early(self._engine.store, expired)
            taken = await self._settle_each(expired, functools.partial(_lose_lease, early), now)
            total += taken
            if len(expired) < self._chores.batch or not taken:
                break
        return total

    async def cancel_broken(self, *, now: int | None = None) -> int:
        """Cancel the jobs that wait for one that did not succeed, and then those that wait for them."""
        total = 0
        while broken := await self._engine.store.broken(self._chores.batch):
            taken = await self._settle_each(broken, _cancel_broken, now)
            total += taken
            if not taken:
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
    return commands.lose_lease(job, rand=rand, begun=job.job_id not in early)


def _cancel_broken(job: Job) -> Settlement:
    return commands.cancel(job, f"job {job.broken_by}, which it depends on, did not succeed")
