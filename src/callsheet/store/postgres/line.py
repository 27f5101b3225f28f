"""The line of claimable jobs inside a transaction: functions that add jobs to the line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from callsheet.kernel.job import HoldReason, OnDependencyFailure, Status
from callsheet.store.queries import Queries

if TYPE_CHECKING:
    from .connection import Row

Q = Queries("callsheet.store.postgres")
BATCH = 1_000


async def line_up_due(session: Any, queue: str, now: int | None) -> list[str]:
    """Move a queue's due jobs to the line, ordered by their time; return the queue once per due job."""
    due = await session.fetch(Q.line_up_due, now, queue, BATCH)
    await admit(session, list(dict.fromkeys(key for (key,) in due if key is not None)))
    return [queue] * len(due)


async def admit(session: Any, keys: Sequence[str]) -> list[str]:
    """Move jobs of concurrency keys to the line while the keys have free slots; return each job's queue."""
    if not keys:
        return []
    await session.fetch(Q.lock_slots, keys)
    return [queue for (queue,) in await session.fetch(Q.admit, keys)]


async def promote(session: Any, now: int | None) -> list[str]:
    """Move all due jobs to the line, and fill the free slots of all keys; return each job's queue."""
    due: list[str] = []
    for (queue,) in await session.fetch(Q.delayed_queues):
        due += await line_up_due(session, queue, now)
    return due + await admit(session, [key for (key,) in await session.fetch(Q.keys_waiting)])


async def release_dependents(session: Any, parent: str, status: Status, now: int) -> set[str]:
    """Update the jobs that depend on `parent` after its end; return queues that may have new ready jobs."""
    children = await session.fetch(Q.dependents, parent)
    has_failed = status is not Status.SUCCEEDED
    broken_ids = [c[0] for c in children if has_failed and c[4] == OnDependencyFailure.CANCEL]
    if broken_ids:
        await session.execute(Q.break_dependents, parent, broken_ids)
    freed_jobs = [c for c in children if not (has_failed and c[4] == OnDependencyFailure.CANCEL)]
    if freed_jobs:
        await session.execute(Q.undepend, parent, [c[0] for c in freed_jobs])
        await _unblock(session, freed_jobs, now)
    return {c[5] for c in freed_jobs}


async def _unblock(session: Any, children: Sequence[Row], now: int) -> None:
    """Decrement blocked counts, oldest job first. A job that gets a slot is admitted before the next is unblocked."""
    ids: list[str] = []
    holds: list[str | None] = []
    for job_id, blocked_by, run_at, key, *_ in children:
        held = HoldReason.DELAY.value if run_at > now else (HoldReason.SLOT.value if key is not None else None)
        ids.append(job_id)
        holds.append(held)
        if blocked_by == 1 and held == HoldReason.SLOT:
            await session.execute(Q.unblock, ids, holds)
            await admit(session, [key])
            ids, holds = [], []
    if ids:
        await session.execute(Q.unblock, ids, holds)
