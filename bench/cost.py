"""What a job costs to keep: bytes on disk or in Redis' memory, and bytes of PostgreSQL's log through a whole life."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import redis.asyncio

from bench.measure import PAYLOAD, keep, new_ids, say
from bench.places import fresh, server_versions
from bench.side import cut
from bench.store import Ours
from callsheet.kernel.job import NewJob

JOBS = 20_000
QUICK_JOBS = 5_000
BATCH = 100
PAYLOADS = {"small": PAYLOAD, "1 KB": json.dumps({"text": "x" * 1_012}, separators=(",", ":"))}
RELATIONS = """
SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'public' AND c.relkind = 'r'
"""
Size = Callable[[str], Awaitable[int]]


async def measure(kind: str, *, quick: bool) -> None:
    """Growth by queued and by ended jobs, with both payloads."""
    count = QUICK_JOBS if quick else JOBS
    rows = [{"payload": name, **await _grow(kind, payload, count)} for name, payload in PAYLOADS.items()]
    for row in rows:
        say(
            f"cost {kind}, {row['payload']} payload: "
            + ", ".join(f"{k} {v:,.0f}" for k, v in row.items() if k != "payload")
        )
    keep(f"cost-{kind}", {"jobs": count, "rows": rows, "servers": await server_versions()}, quick=quick)


async def _grow(kind: str, payload: str, count: int) -> dict[str, float]:
    """Return the bytes per job after the enqueue, and after the jobs ended."""
    size = SIZES[kind]
    async with fresh(kind) as url:
        empty = await _after(url, _nothing, size)
        log = await _log_position(url) if kind == "postgres" else 0

        async def enqueue(side: Ours) -> None:
            await side.enqueue(cut([NewJob(i, "bench", payload) for i in new_ids(count)], BATCH))

        async def drain(side: Ours) -> None:
            await side.drain(BATCH)

        queued_bytes = await _after(url, enqueue, size)
        ended_bytes = await _after(url, drain, size)
        figures = {"queued_bytes": (queued_bytes - empty) / count, "ended_bytes": (ended_bytes - empty) / count}
        if kind == "postgres":
            figures["log_bytes"] = (await _log_position(url) - log) / count
        return figures


async def _after(url: str, work: Callable[[Ours], Awaitable[None]], size: Size) -> int:
    """The size after some work, measured when the store is closed: SQLite has folded its log into the file then."""
    side = Ours(url)
    await side.open()
    await work(side)
    await side.close()
    return await size(url)


async def _nothing(_: Ours) -> None:
    """Open the store, which creates the tables, and add no jobs."""


async def _sqlite_size(url: str) -> int:
    return Path(url.removeprefix("sqlite:///")).stat().st_size  # noqa: ASYNC240 - nothing else runs


async def _postgres_size(url: str) -> int:
    session = await asyncpg.connect(url)
    size = int(await session.fetchval(RELATIONS))
    await session.close()
    return size


async def _redis_size(url: str) -> int:
    async with redis.asyncio.Redis.from_url(url) as client:
        info: dict[str, Any] = await client.info("memory")
    return int(info["used_memory"])


async def _log_position(url: str) -> int:
    """How much log the server has ever written; a checkpoint first, so that both runs begin alike."""
    session = await asyncpg.connect(url)
    await session.execute("CHECKPOINT")
    position = int(await session.fetchval("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))
    await session.close()
    return position


SIZES: dict[str, Size] = {"sqlite": _sqlite_size, "postgres": _postgres_size, "redis": _redis_size}
