"""Stores with very many jobs: the store writes some seeds, and SQL multiplies the seeds.

A copy differs from the row that the store wrote in `seq`, `position` and `job_id` only.
Copies of ended jobs bring their events and their attempt; those of waiting jobs their first event.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, NamedTuple

import asyncpg

from bench.measure import LEASE_MS, PAYLOAD, RESULT, WORKER, new_ids
from callsheet.kernel import commands
from callsheet.kernel.job import NewJob
from callsheet.store.protocol import ClaimRequest, Store

SEED = 1_000
FAR_MS = 365 * 24 * 3600 * 1000
OWN = ("seq", "position", "job_id")

# A copy's number `n` makes its id; copies stand in line behind all that were there before.
SQLITE_JOBS = """
WITH RECURSIVE copies (k) AS (SELECT 0 UNION ALL SELECT k + 1 FROM copies WHERE k + 1 < :copies),
seeds AS MATERIALIZED (SELECT row_number() OVER (ORDER BY seq) - 1 AS i, * FROM inbox_jobs WHERE {which})
INSERT INTO inbox_jobs (seq, position, job_id, {columns})
SELECT :first + k * :seeds + i, sign(position) * (:first + k * :seeds + i),
       printf('%08x-0000-7000-8000-%012x', :first + k * :seeds + i, i), {columns}
FROM copies CROSS JOIN seeds ORDER BY k, i
"""
SQLITE_RELATED = """
INSERT INTO {table} SELECT j.job_id, {columns} FROM inbox_jobs j CROSS JOIN {table} t
WHERE j.seq >= :first AND t.job_id = :example ORDER BY j.seq, t.{second}
"""
POSTGRES_JOBS = """
WITH seeds AS MATERIALIZED (SELECT row_number() OVER (ORDER BY seq) - 1 AS i, * FROM inbox_jobs WHERE {which})
INSERT INTO inbox_jobs (seq, position, began_ms, job_id, {columns})
SELECT $1::bigint + k * $3::bigint + i, $1 + k * $3 + i, began_ms,
       (lpad(to_hex($1 + k * $3 + i), 8, '0') || '-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid, {columns}
FROM generate_series(0, $2::bigint - 1) AS k CROSS JOIN seeds ORDER BY k, i
"""
POSTGRES_RELATED = """
INSERT INTO {table} SELECT j.job_id, {columns} FROM inbox_jobs j CROSS JOIN {table} t
WHERE j.seq >= $1 AND t.job_id = $2 ORDER BY j.seq, t.{second}
"""
COPIES_OF_RELATED = {
    "job_events": ("seq", "ms", "type", "step", "progress", "data"),
    "job_attempts": ("claim_version", "attempt", "worker_id", "started_at", "ended_at", "outcome", "error"),
}


class Kind(NamedTuple):
    """The SQL condition for the jobs that are multiplied: all jobs of one state."""

    name: str
    which: str


ENDED_JOBS = Kind("ended", "status = 'succeeded'")
FUTURE = Kind("future", "status = 'queued' AND held = 'delay'")
WAITING = Kind("waiting", "status = 'queued' AND held IS NULL")


async def seed(store: Store, kind: Kind, count: int = SEED) -> list[str]:
    """Write jobs of one state through the store; their ids."""
    ids = new_ids(count)
    delay_ms = FAR_MS if kind is FUTURE else 0
    await store.enqueue([NewJob(i, "bench", PAYLOAD, delay_ms=delay_ms) for i in ids])
    if kind is ENDED_JOBS:
        jobs = await store.claim(ClaimRequest(WORKER, limit=count, lease_ms=LEASE_MS))
        await store.settle([commands.succeed(job, RESULT) for job in jobs])
    return ids


async def multiply_sqlite(path: str, kind: Kind, example: str, copies: int) -> None:
    """Copy the seed jobs of one state through a second connection, then run ANALYZE."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA synchronous=OFF")
    db.execute("PRAGMA cache_size=-262144")
    db.execute("BEGIN IMMEDIATE")
    names = [row[1] for row in db.execute("PRAGMA table_info(inbox_jobs)")]
    first = db.execute("SELECT max(seq) + 1 FROM inbox_jobs").fetchone()[0]
    numbers = {"first": first, "copies": copies, "seeds": SEED}
    db.execute(SQLITE_JOBS.format(which=kind.which, columns=_columns_of_both(names)), numbers)
    for table, columns in COPIES_OF_RELATED.items():
        sql = SQLITE_RELATED.format(table=table, columns=_of("t", columns), second=columns[0])
        db.execute(sql, {"first": first, "example": example})
    db.execute("UPDATE counters SET value = (SELECT max(seq) FROM inbox_jobs) WHERE name = 'position'")
    db.execute("COMMIT")
    db.execute("ANALYZE")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    db.close()


async def multiply_postgres(url: str, kind: Kind, example: str, copies: int) -> None:
    """Copy the seeds of a state; VACUUM ANALYZE afterwards."""
    session: Any = await asyncpg.connect(url, server_settings={"synchronous_commit": "off", "jit": "off"})
    rows = await session.fetch(
        "SELECT column_name FROM information_schema.columns WHERE table_name = 'inbox_jobs' ORDER BY ordinal_position"
    )
    first = await session.fetchval("SELECT max(seq) + 1 FROM inbox_jobs")
    sql = POSTGRES_JOBS.format(which=kind.which, columns=_columns_of_both([row[0] for row in rows]))
    await session.execute(sql, first, copies, SEED, timeout=None)
    for table, columns in COPIES_OF_RELATED.items():
        copy_related = POSTGRES_RELATED.format(table=table, columns=_of("t", columns), second=columns[0])
        await session.execute(copy_related, first, example, timeout=None)
    await session.execute("SELECT setval('inbox_jobs_line', (SELECT max(seq) FROM inbox_jobs))")
    await session.execute("VACUUM ANALYZE", timeout=None)
    await session.close()


def _columns_of_both(names: Sequence[str]) -> str:
    """The columns that a copy takes over."""
    return ", ".join(name for name in names if name not in OWN)


def _of(alias: str, columns: Sequence[str]) -> str:
    return ", ".join(f"{alias}.{column}" for column in columns)
