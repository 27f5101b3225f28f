"""The backlog is read from the partial indexes over jobs that have not ended, however many have."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator
from importlib.resources import files
from typing import Any

import pytest

from callsheet.store.queries import Queries
from tests import stores
from tests.plans import nodes_of, planning

POSTGRES = Queries("callsheet.store.postgres")
SQLITE = Queries("callsheet.store.sqlite")
INDEXES = frozenset({"claimable", "delayed", "waiting_for_slot", "blocked", "leased"})
ENDED, EACH = 20_000, 200
T0 = 1_800_000_000_000
FILL = """
INSERT INTO inbox_jobs (seq, position, job_id, requester_id, contract, kind, queue, priority, status, held, run_at,
    payload, worker_id, lease_expires_at, max_attempts, created_at, updated_at, ended_at, event_ms, concurrency_key)
SELECT nextval('inbox_jobs_line'), currval('inbox_jobs_line'), gen_random_uuid(), '', 'callsheet', 'k',
    'q' || n % 4, n % 3, s.status, s.held, 1800000000000 + n, '{}', 'w',
    CASE WHEN s.status = 'running' THEN 1800000000000 + n END, 3, 1700000000000, 1700000000000,
    CASE WHEN s.status = 'succeeded' THEN 1800000000000 + n END, 1700000000000,
    CASE WHEN s.held = 'slot' THEN 'key' || n % 50 END
FROM (
    VALUES ('queued', NULL, $1), ('queued', 'delay', $1), ('queued', 'slot', $1), ('queued', 'dependency', $1),
        ('running', NULL, $1), ('succeeded', NULL, $2)
) AS s (status, held, rows) CROSS JOIN LATERAL generate_series(1, s.rows::int) n
"""


@pytest.fixture(scope="module")
def filled() -> str:
    return stores.fresh_url("postgres")


@pytest.fixture(params=["direct", "pooled"])
async def session(request: pytest.FixtureRequest, filled: str) -> AsyncIterator[Any]:
    async with planning(filled, request.param, (FILL, str(EACH), str(ENDED))) as session:
        yield session


async def test_postgres_reads_no_ended_job(session: Any) -> None:
    text = await session.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF) {POSTGRES.backlog}", T0 + 100)
    nodes = list(nodes_of(json.loads(text)[0]["Plan"]))
    assert {node["Index Name"] for node in nodes if "Index Name" in node} == {f"inbox_jobs_{name}" for name in INDEXES}
    scans = [node for node in nodes if node.get("Relation Name") == "inbox_jobs"]
    assert "Seq Scan" not in {node["Node Type"] for node in scans}
    assert max(node["Actual Rows"] + node.get("Rows Removed by Filter", 0) for node in scans) <= EACH


async def test_postgres_looks_up_only_the_first_of_each_priority(session: Any) -> None:
    text = await session.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF) {POSTGRES.backlog}", T0)
    nodes = [n for n in nodes_of(json.loads(text)[0]["Plan"]) if n.get("Index Name") == "inbox_jobs_claimable"]
    assert sorted((n["Node Type"], n["Actual Rows"], n["Actual Loops"]) for n in nodes) == [
        ("Index Only Scan", EACH, 1),
        ("Index Scan", 1, 12),
    ]


def test_sqlite_reads_no_ended_job() -> None:
    db = sqlite3.connect(":memory:")
    db.executescript(files("callsheet.store.sqlite").joinpath("schema.sql").read_text("utf-8"))
    steps = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {SQLITE.backlog}", (T0,))]
    reads = [step for step in steps if "inbox_jobs" in step or step.startswith(("SCAN j", "SEARCH j"))]
    assert all("INDEX inbox_jobs_" in step for step in reads), steps
    assert {name for name in INDEXES if any(f"inbox_jobs_{name}" in step for step in reads)} == INDEXES
    assert any("COVERING INDEX inbox_jobs_claimable" in step for step in reads), steps
