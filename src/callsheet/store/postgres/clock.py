"""Move waiting times in a PostgreSQL database by a step of the clock, inside a transaction."""

from __future__ import annotations

from typing import Any

from callsheet.store.clock import TOLERANCE_MS, ClockStep, Rebased
from callsheet.store.queries import Queries

Q = Queries("callsheet.store.postgres")
LONGEST_S = 600  # a command on millions of rows; other commands may take a minute
BLOCKED = Q.rebase_delayed.replace("held = 'delay'", "held = 'dependency'")  # each statement has an index of its own


async def rebase(session: Any, step: ClockStep) -> Rebased:
    """Move leases, and after a step back all waiting times; return how many rows moved.

    Leases come last: a heartbeat skips locked rows, and delays take 4.9 s per 100,000.
    """

    async def move(sql: str, *parameters: int) -> int:
        count: int = await session.fetchval(sql, *parameters, timeout=LONGEST_S)
        return count

    jobs = callbacks = 0
    if step.shift_ms < 0:
        of_delays = (step.before, step.after, step.since or 0)
        jobs = await move(Q.rebase_delayed, *of_delays) + await move(BLOCKED, *of_delays)
        callbacks = await move(Q.rebase_callbacks, step.before, step.after)
    of_leases = (step.before, step.after, TOLERANCE_MS)
    callbacks += await move(Q.rebase_deliveries, *of_leases)
    return Rebased(jobs, await move(Q.rebase_leases, *of_leases), callbacks)
