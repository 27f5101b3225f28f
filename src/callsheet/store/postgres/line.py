"""The line of claimable jobs inside a transaction: who enters it, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from callsheet.kernel.job import Held, OnDependencyFailure, Status
from callsheet.store.queries import Queries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .connection import Row

Q = Queries("callsheet.store.postgres")
BATCH = 1_000


async def line_up_due(session: Any, queue: str, now: int | None) -> list[str]:
    """Bring a queue's due jobs into line, in order of their time; the queue of each that was due."""
    due = await session.fetch(Q.line_up_due, now, queue, BATCH)
    await admit(session, list(dict.fromkeys(key for (key,) in due if key is not None)))
    return [queue] * len(due)


async def admit(session: Any, keys: Sequence[str]) -> list[str]:
    """Let jobs of concurrency keys into line while they have free slots; the queue of each."""
    if not keys:
        return []
    await session.fetch(Q.lock_slots, keys)
    return [queue for (queue,) in await session.fetch(Q.admit, keys)]


async def promote(session: Any, now: int | None) -> list[str]:
    """Bring all that is due into line, and fill the free slots of all keys; the queue of each."""
    due: list[str] = []
    for (queue,) in await session.fetch(Q.delayed_queues):
        due += await line_up_due(session, queue, now)
    return due + await admit(session, [key for (key,) in await session.fetch(Q.keys_waiting)])


async def release_dependents(session: Any, parent: str, status: Status, now: int) -> set[str]:
    """Tell the jobs that wait for `parent` that it has ended; the queues where that may have put one in line."""
    children = await session.fetch(Q.dependents, parent)
    failed = status is not Status.SUCCEEDED
    broken = [c[0] for c in children if failed and c[4] == OnDependencyFailure.CANCEL]
    if broken:
        await session.execute(Q.break_dependents, parent, broken)
    freed = [c for c in children if not (failed and c[4] == OnDependencyFailure.CANCEL)]
    if freed:
        await session.execute(Q.undepend, parent, [c[0] for c in freed])
        await _unblock(session, freed, now)
    return {c[5] for c in freed}


async def _unblock(session: Any, children: Sequence[Row], now: int) -> None:
    """Count down in order of age. A child that gets a slot takes its place before the next is looked at."""
    ids: list[str] = []
    holds: list[str | None] = []
    for job_id, blocked_by, run_at, key, *_ in children:
        held = Held.DELAY.value if run_at > now else (Held.SLOT.value if key is not None else None)
        ids.append(job_id)
        holds.append(held)
        if blocked_by == 1 and held == Held.SLOT:
            await session.execute(Q.unblock, ids, holds)
            await admit(session, [key])
            ids, holds = [], []
    if ids:
        await session.execute(Q.unblock, ids, holds)
