"""The SQLite loop one would write by hand for the same rows and events: the store's own tables, and nothing else.

One connection, and one transaction that ends the last batch and claims the next: a commit for each batch is the
least that an exclusive, leased claim can do. No slots, no dependencies, no idempotency, no hints.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from importlib.resources import files

from bench.measure import LEASE_MS, PAYLOAD, RESULT, WORKER, now_ms
from bench.side import cut

Rows = list[tuple[object, ...]]

SCHEMA = files("callsheet.store.sqlite").joinpath("schema.sql").read_text("utf-8")
ENQUEUE = """
INSERT INTO inbox_jobs (
    seq, position, job_id, requester_id, contract, kind, queue, priority, run_at, payload, max_attempts, created_at,
    updated_at, event_ms
) VALUES (?1, ?1, ?2, '', 'callsheet', 'bench', 'default', 0, ?4, ?3, 3, ?4, ?4, ?4)
"""
EVENT = "INSERT INTO job_events VALUES (?1, ?2, ?3, ?4, '', ?5, '{}')"
CLAIM = """
UPDATE inbox_jobs SET status = 'running', position = -position, worker_id = ?1, claim_version = claim_version + 1,
    lease_expires_at = ?2, heartbeat_at = ?3, attempt_count = attempt_count + 1, started_at = ?3,
    attempt_started_at = ?3, updated_at = ?3, event_seq = 2, event_ms = ?3
WHERE seq IN (
    SELECT seq FROM inbox_jobs WHERE queue = 'default' AND position > 0 ORDER BY priority DESC, position LIMIT ?4
)
RETURNING job_id, claim_version, started_at, payload
"""
FINISH = """
UPDATE inbox_jobs SET status = 'succeeded', result = ?3, progress = 100, lease_expires_at = NULL, heartbeat_at = NULL,
    attempt_started_at = NULL, ended_at = ?4, updated_at = ?4, event_seq = 3, event_ms = ?4
WHERE job_id = ?1 AND claim_version = ?2 AND status = 'running'
"""
ATTEMPT = "INSERT INTO job_attempts VALUES (?1, ?2, 1, ?3, ?4, ?5, 'succeeded', NULL)"


class LostClaim(Exception):
    """The claim fence failed, although no other worker runs in this loop."""


class SqliteLimit:
    """A Side: plain `sqlite3`, in the thread of the caller."""

    def __init__(self, url: str, synchronous: str) -> None:
        self._path = url.removeprefix("sqlite:///").partition("?")[0]
        self._synchronous = synchronous

    async def open(self) -> None:
        self._db = sqlite3.connect(self._path, isolation_level=None)
        for pragma in (
            "journal_mode=WAL",
            f"synchronous={self._synchronous}",
            "temp_store=MEMORY",
            "cache_size=-65536",
        ):
            self._db.execute(f"PRAGMA {pragma}").fetchall()
        self._db.executescript(SCHEMA)

    async def close(self) -> None:
        self._db.close()

    def batches(self, ids: Sequence[str], size: int) -> list[Sequence[str]]:
        return cut(ids, size)

    async def enqueue(self, batches: Sequence[Sequence[str]]) -> None:
        db = self._db
        seq = 0
        for ids in batches:
            now = now_ms()
            db.execute("BEGIN IMMEDIATE")
            db.executemany(ENQUEUE, [(seq + n, job_id, PAYLOAD, now) for n, job_id in enumerate(ids, 1)])
            seq += len(ids)
            db.executemany(EVENT, [(job_id, 1, now, "queued", 0.0) for job_id in ids])
            db.execute("COMMIT")

    async def drain(self, size: int) -> int:
        count = 0
        rows = self._turn([], size)
        while rows:
            count += len(rows)
            rows = self._turn(rows, size)
        return count

    def _turn(self, claimed_rows: Rows, size: int) -> Rows:
        """End what was claimed and claim as much again, in one transaction."""
        db = self._db
        now = now_ms()
        db.execute("BEGIN IMMEDIATE")
        if claimed_rows:
            ends = [(job_id, version, RESULT, now) for job_id, version, _, _ in claimed_rows]
            if db.executemany(FINISH, ends).rowcount != len(claimed_rows):
                db.execute("ROLLBACK")
                raise LostClaim
            db.executemany(EVENT, [(row[0], 3, now, "done", 100.0) for row in claimed_rows])
            attempts = [(row[0], row[1], WORKER, row[2], now) for row in claimed_rows]
            db.executemany(ATTEMPT, attempts)
        rows = db.execute(CLAIM, (WORKER, now + LEASE_MS, now, size)).fetchall()
        db.executemany(EVENT, [(row[0], 2, now, "running", 0.0) for row in rows])
        db.execute("COMMIT")
        return rows
