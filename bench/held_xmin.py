"""A forgotten transaction on PostgreSQL: its old snapshot keeps vacuum from removing what every claim leaves behind.

The same offered load twice: a short control run without the transaction, then a long run with it. One producer and two
claimers each open their own store, as three processes would.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import asyncpg

from bench.measure import LEASE_MS, PAYLOAD, RESULT, WORKER, keep, new_ids, percentile, say
from bench.places import fresh, server_versions
from callsheet.kernel import commands
from callsheet.kernel.job import NewJob
from callsheet.store import store_from_url
from callsheet.store.protocol import ClaimRequest, Settled, Store

OFFERED_PER_S = 800
SMALL_BATCH = 8
CLAIM_LIMIT = 20
CLAIMERS = 2
IDLE_S = 0.01
GRACE_S = 10.0
DEAD = "SELECT coalesce(sum(n_dead_tup), 0) FROM pg_stat_user_tables WHERE relname = 'inbox_jobs'"


class Plan(NamedTuple):
    """The length of both runs, and the interval between reported figures."""

    control_s: float
    held_s: float
    window_s: float


FULL = Plan(control_s=120, held_s=600, window_s=30)
QUICK = Plan(control_s=10, held_s=60, window_s=10)


@dataclass
class Load:
    """The counters of one run."""

    began: float = field(default_factory=time.perf_counter)
    offered_jobs: int = 0
    done_jobs: int = 0
    claims: list[float] = field(default_factory=list)
    over: bool = False

    @property
    def backlog(self) -> int:
        return self.offered_jobs - self.done_jobs


async def measure(kind: str, *, quick: bool) -> None:
    """Control and held, and what the held snapshot cost."""
    plan = QUICK if quick else FULL
    control = await _under_load(kind, plan.control_s, plan.window_s, held=False)
    held = await _under_load(kind, plan.held_s, plan.window_s, held=True)
    record = {"offered_per_s": OFFERED_PER_S, "control": control, "held": held}
    keep(f"held_xmin-{kind}", {**record, "servers": await server_versions()}, quick=quick)


async def _under_load(kind: str, seconds: float, window_s: float, *, held: bool) -> dict[str, Any]:
    async with fresh(kind) as url, contextlib.AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(_store(url)) for _ in range(1 + CLAIMERS)]
        if held:
            await stack.enter_async_context(_old_snapshot(url))
        load = Load()
        async with asyncio.TaskGroup() as group:
            group.create_task(_produce(stores[0], load, seconds))
            for store in stores[1:]:
                group.create_task(_work(store, load))
            windows = group.create_task(_watch(load, seconds, window_s, held=held))
        dead = await _dead_rows(url)
    say(f"held_xmin: {dead:,} dead rows at the end")
    return {"seconds": seconds, "dead_rows": dead, "windows": windows.result(), "left": load.backlog}


@contextlib.asynccontextmanager
async def _store(url: str) -> AsyncIterator[Store]:
    store = store_from_url(url)
    await store.migrate()
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@contextlib.asynccontextmanager
async def _old_snapshot(url: str) -> AsyncIterator[None]:
    """An idle transaction whose snapshot was taken now."""
    session = await asyncpg.connect(url)
    async with session.transaction(isolation="repeatable_read"):
        await session.fetchval("SELECT count(*) FROM inbox_jobs")
        yield
    await session.close()


async def _produce(store: Store, load: Load, seconds: float) -> None:
    """Enqueue small batches by the clock; what the store cannot take in time comes late, and is offered still."""
    while (elapsed_s := time.perf_counter() - load.began) < seconds:
        if load.offered_jobs >= elapsed_s * OFFERED_PER_S:
            await asyncio.sleep(SMALL_BATCH / OFFERED_PER_S / 2)
            continue
        await store.enqueue([NewJob(i, "bench", PAYLOAD) for i in new_ids(SMALL_BATCH)])
        load.offered_jobs += SMALL_BATCH
    load.over = True


async def _work(store: Store, load: Load) -> None:
    """Claim and settle jobs until every offered job is done or the grace time is over."""
    request = ClaimRequest(WORKER, limit=CLAIM_LIMIT, lease_ms=LEASE_MS)
    ended_at = 0.0
    while not (load.over and load.backlog == 0):
        began = time.perf_counter()
        jobs = await store.claim(request)
        load.claims.append((time.perf_counter() - began) * 1000)
        if jobs:
            answers = await store.settle([commands.succeed(job, RESULT) for job in jobs])
            load.done_jobs += answers.count(Settled.APPLIED)
        else:
            await asyncio.sleep(IDLE_S)
        if load.over:
            ended_at = ended_at or time.perf_counter()
            if time.perf_counter() - ended_at > GRACE_S:
                return


async def _watch(load: Load, seconds: float, window_s: float, *, held: bool) -> list[dict[str, float]]:
    """One row for each window of time."""
    rows = []
    for number in range(1, round(seconds / window_s) + 1):
        before, seen = load.done_jobs, len(load.claims)
        await asyncio.sleep(max(0.0, load.began + number * window_s - time.perf_counter()))
        claims = load.claims[seen:] or [float("nan")]
        row = {
            "until_s": number * window_s,
            "done_per_s": (load.done_jobs - before) / window_s,
            "claim_p50_ms": percentile(claims, 0.5),
            "claim_p99_ms": percentile(claims, 0.99),
            "backlog": load.backlog,
            "machine_load": os.getloadavg()[0],
        }
        rows.append(row)
        say(
            f"held_xmin {'held' if held else 'control'} {row['until_s']:.0f} s: {row['done_per_s']:.0f}/s, "
            f"claim p50 {row['claim_p50_ms']:.2f} p99 {row['claim_p99_ms']:.2f} ms, backlog {row['backlog']}"
        )
    return rows


async def _dead_rows(url: str) -> int:
    """The server's own count; a session's figures arrive up to a second after its last transaction."""
    await asyncio.sleep(1.5)
    session = await asyncpg.connect(url)
    count: int = int(await session.fetchval(DEAD))
    await session.close()
    return count
