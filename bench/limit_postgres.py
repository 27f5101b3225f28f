"""The PostgreSQL loop one would write by hand: the store's rows and events, nothing else.

asyncpg and prepared statements; one connection claims while another ends what was claimed before. Rows are found again
by `ctid`, UUIDs travel as bytes and the planner is kept on the indexes: the fastest loop among several alternatives.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import asyncpg

from bench.measure import LEASE_MS, PAYLOAD, RESULT, WORKER
from bench.side import cut, overlap

SCHEMA = files("callsheet.store.postgres").joinpath("schema.sql").read_text("utf-8")
ENQUEUE = """
WITH clock AS MATERIALIZED (SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now), created AS (
    INSERT INTO inbox_jobs (
        seq, position, job_id, requester_id, contract, kind, queue, priority, run_at, payload, max_attempts, created_at,
        updated_at, event_ms
    )
    SELECT seq, seq, job_id, '', 'callsheet', 'bench', 'default', 0, now, payload, 3, now, now, now
    FROM clock, (SELECT nextval('inbox_jobs_line') AS seq, a.* FROM unnest($1::uuid[], $2::text[]) AS a (job_id, payload)) n
    RETURNING seq, job_id
)
INSERT INTO job_register SELECT seq, job_id, '' FROM created
"""
CLAIM = """
WITH clock AS MATERIALIZED (
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now
), chosen AS MATERIALIZED (
    SELECT ctid AS row_id FROM inbox_jobs WHERE queue = 'default' AND status = 'queued' AND held IS NULL
    ORDER BY priority DESC, position LIMIT $1::bigint FOR UPDATE SKIP LOCKED
), claimed AS (
    UPDATE inbox_jobs j SET status = 'running', worker_id = $2, claim_version = j.claim_version + 1,
        lease_expires_at = now + $3::integer, heartbeat_at = now, attempt_count = j.attempt_count + 1,
        started_at = now, attempt_started_at = now, updated_at = now, event_seq = 2, event_ms = now,
        began_ms = now
    FROM chosen c, clock WHERE j.ctid = c.row_id
    RETURNING j.job_id, j.claim_version, j.payload
)
SELECT job_id, claim_version, payload FROM claimed
"""
FINISH = """
WITH clock AS MATERIALIZED (
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now
)
UPDATE inbox_jobs j SET status = 'succeeded', result = a.result, progress = 100, lease_expires_at = NULL,
    heartbeat_at = NULL, attempt_started_at = NULL, ended_at = now, updated_at = now, event_seq = 3, event_ms = now
FROM unnest($1::uuid[], $2::integer[], $3::text[]) AS a (job_id, claim_version, result), clock
WHERE j.job_id = a.job_id AND j.claim_version = a.claim_version AND j.status = 'running'
RETURNING 1
"""
SETTINGS = {
    "jit": "off",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
}
Batch = tuple[list[bytes], list[str]]


class LostClaim(Exception):
    """The claim fence failed, although no other worker runs in this loop."""


class PostgresLimit:
    """A Side: two connections."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def open(self) -> None:
        self._claimer = await self._connect()
        await self._claimer.execute(SCHEMA)
        self._finisher = await self._connect()

    async def close(self) -> None:
        await self._claimer.close()
        await self._finisher.close()

    def batches(self, ids: Sequence[str], size: int) -> list[Batch]:
        return [([uuid.UUID(i).bytes for i in part], [PAYLOAD] * len(part)) for part in cut(ids, size)]

    async def enqueue(self, batches: Sequence[Batch]) -> None:
        statement = await self._claimer.prepare(ENQUEUE)
        for ids, payloads in batches:
            await statement.fetch(ids, payloads)

    async def drain(self, size: int) -> int:
        claim = await self._claimer.prepare(CLAIM)
        statement = await self._finisher.prepare(FINISH)

        async def finish(rows: Sequence[Any]) -> None:
            results = [RESULT] * len(rows)
            await statement.fetch([row[0] for row in rows], [row[1] for row in rows], results)
            if statement.get_statusmsg() != f"UPDATE {len(rows)}":
                raise LostClaim

        return await overlap(lambda: claim.fetch(size, WORKER, LEASE_MS), finish)

    async def _connect(self) -> Any:
        session = await asyncpg.connect(self._url, server_settings=SETTINGS)
        await session.set_type_codec("uuid", schema="pg_catalog", encoder=bytes, decoder=bytes, format="binary")
        return session
