"""The PostgreSQL loop one would write by hand: the same rows and events as the store's, and nothing else.

asyncpg and prepared statements; one connection claims while another ends what was claimed before. Rows are found again
by `ctid`, UUIDs travel as bytes and the planner is kept on the indexes: the fastest of the ways that were tried.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import asyncpg

from bench.measure import LEASE_MS, PAYLOAD, RESULT, WORKER
from bench.side import cut, overlap

SCHEMA = """
CREATE TABLE jobs (
    job_id uuid PRIMARY KEY,
    seq bigint GENERATED ALWAYS AS IDENTITY (CACHE 1000),
    requester_id text NOT NULL,
    contract text NOT NULL,
    kind text NOT NULL,
    queue text NOT NULL,
    priority smallint NOT NULL,
    status smallint NOT NULL,
    stage text NOT NULL DEFAULT '',
    progress float8 NOT NULL DEFAULT 0,
    run_at timestamptz NOT NULL,
    payload text NOT NULL,
    result text,
    worker_id text,
    claim_version integer NOT NULL DEFAULT 0,
    lease_expires_at timestamptz,
    heartbeat_at timestamptz,
    attempt_count integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    started_at timestamptz,
    ended_at timestamptz,
    event_seq integer NOT NULL DEFAULT 1,
    event_at timestamptz NOT NULL
) WITH (fillfactor = 80);
CREATE INDEX jobs_ready ON jobs (queue, priority DESC, seq) WHERE status = 0;
CREATE INDEX jobs_leased ON jobs (lease_expires_at) WHERE status = 1;
CREATE TABLE events (
    job_id uuid NOT NULL, seq integer NOT NULL, at timestamptz NOT NULL, type text NOT NULL, step text NOT NULL,
    progress float8 NOT NULL, data text NOT NULL,
    PRIMARY KEY (job_id, seq)
);
CREATE TABLE attempts (
    job_id uuid NOT NULL, claim_version integer NOT NULL, attempt integer NOT NULL, worker_id text NOT NULL, started_at timestamptz NOT NULL,
    ended_at timestamptz NOT NULL, outcome text NOT NULL,
    PRIMARY KEY (job_id, claim_version)
);
"""
ENQUEUE = """
WITH created AS (
    INSERT INTO jobs (
        job_id, requester_id, contract, kind, queue, priority, status, run_at, payload, max_attempts, created_at,
        updated_at, event_at
    )
    SELECT job_id, '', 'callsheet', 'bench', 'default', 0, 0, now(), payload, 3, now(), now(), now()
    FROM unnest($1::uuid[], $2::text[]) AS a (job_id, payload)
    RETURNING job_id
)
INSERT INTO events SELECT job_id, 1, now(), 'queued', '', 0, '{}' FROM created
"""
CLAIM = """
WITH chosen AS MATERIALIZED (
    SELECT ctid AS row_id FROM jobs WHERE queue = 'default' AND status = 0
    ORDER BY priority DESC, seq LIMIT $1::bigint FOR UPDATE SKIP LOCKED
), claimed AS (
    UPDATE jobs j SET status = 1, worker_id = $2, claim_version = j.claim_version + 1,
        lease_expires_at = now() + $3::integer * interval '1 ms', attempt_count = j.attempt_count + 1,
        heartbeat_at = now(), started_at = now(), updated_at = now(), event_seq = 2, event_at = now()
    FROM chosen c WHERE j.ctid = c.row_id
    RETURNING j.job_id, j.claim_version, j.payload
), noted AS (
    INSERT INTO events SELECT job_id, 2, now(), 'running', '', 0, '{}' FROM claimed
)
SELECT job_id, claim_version, payload FROM claimed
"""
FINISH = """
WITH ended AS (
    UPDATE jobs j SET status = 2, result = a.result, progress = 100, lease_expires_at = NULL, heartbeat_at = NULL,
        ended_at = now(), updated_at = now(), event_seq = 3, event_at = now()
    FROM unnest($1::uuid[], $2::integer[], $3::text[]) AS a (job_id, claim_version, result)
    WHERE j.job_id = a.job_id AND j.claim_version = a.claim_version AND j.status = 1
    RETURNING j.job_id, j.claim_version, j.worker_id, j.started_at
), noted AS (
    INSERT INTO events SELECT job_id, 3, now(), 'done', '', 100, '{}' FROM ended
)
INSERT INTO attempts SELECT job_id, claim_version, 1, worker_id, started_at, now(), 'succeeded' FROM ended
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
    """The fence did not hold; in this loop nobody else is there to break it."""


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
        finish = await self._finisher.prepare(FINISH)

        async def ended(rows: Sequence[Any]) -> None:
            results = [RESULT] * len(rows)
            await finish.fetch([row[0] for row in rows], [row[1] for row in rows], results)
            if finish.get_statusmsg() != f"INSERT 0 {len(rows)}":
                raise LostClaim

        return await overlap(lambda: claim.fetch(size, WORKER, LEASE_MS), ended)

    async def _connect(self) -> Any:
        session = await asyncpg.connect(self._url, server_settings=SETTINGS)
        await session.set_type_codec("uuid", schema="pg_catalog", encoder=bytes, decoder=bytes, format="binary")
        return session
