"""Plans on a table with 20,000 rows of each kind: a full scan fails here, not in production."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from callsheet.kernel.job import NewEvent, Outcome, Status
from callsheet.kernel.settlement import Settlement
from callsheet.store.postgres import claim as claim_verb
from callsheet.store.postgres import settle as settle_verb
from callsheet.store.queries import Queries
from tests import stores
from tests.plans import nodes_of, planning

Q = Queries("callsheet.store.postgres")
ROWS = 20_000
WITHIN = (Q.line_up_due, Q.admit, Q.lock_dependents)  # these run only within a transaction
T0 = 1_800_000_000_000
FILL = """
INSERT INTO inbox_jobs (seq, position, job_id, requester_id, contract, kind, queue, priority, status, held, run_at,
    payload, worker_id, lease_expires_at, max_attempts, created_at, updated_at, ended_at, event_ms, concurrency_key)
SELECT nextval('inbox_jobs_line'), currval('inbox_jobs_line'), gen_random_uuid(), 'r' || n % 500, 'callsheet',
    'k',
    'q' || n % 4, n % 3, s.status, s.held, 1800000000000 + n, '{}', 'w',
    CASE WHEN s.status = 'running' THEN 1800000000000 + n END, 3, 1700000000000, 1700000000000,
    CASE WHEN s.status = 'succeeded' THEN 1800000000000 + n END, 1700000000000,
    CASE WHEN s.held = 'slot' THEN 'key' || n % 50 END
FROM generate_series(1, $1) n CROSS JOIN (
    VALUES ('queued', NULL), ('queued', 'delay'), ('queued', 'slot'), ('running', NULL), ('succeeded', NULL)
) AS s (status, held)
"""


@pytest.fixture(scope="module")
def filled() -> str:
    return stores.fresh_url("postgres")


@pytest.fixture(params=["direct", "pooled"])
async def session(request: pytest.FixtureRequest, filled: str) -> AsyncIterator[Any]:
    async with planning(
        filled,
        request.param,
        (FILL, ROWS),
        ("INSERT INTO job_register SELECT seq, job_id, requester_id FROM inbox_jobs",),
        ("INSERT INTO job_events SELECT job_id, 9, event_ms, 'log', '', 0, '{}' FROM inbox_jobs",),
        ("INSERT INTO concurrency_limits SELECT 'key' || n, 1 FROM generate_series(0, 49) n",),
    ) as session:
        yield session


async def explain(session: Any, sql: str, *parameters: object) -> list[dict[str, Any]]:
    """The nodes of the plan as it ran, rolled back."""
    transaction = session.transaction()
    await transaction.start()
    try:
        if sql in WITHIN:
            await session.execute(Q.plan_by_index)
        text = await session.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF) {sql}", *parameters)
    finally:
        await transaction.rollback()
    return list(nodes_of(json.loads(text)[0]["Plan"]))


def indexes(nodes: list[dict[str, Any]]) -> set[str]:
    return {node["Index Name"] for node in nodes if "Index Name" in node}


def read_much(nodes: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """Nodes that read a table whole, or more rows of one than `most`."""
    return [
        node
        for node in nodes
        if (node["Node Type"] == "Seq Scan" and node["Relation Name"] in ("inbox_jobs", "job_events", "job_register"))
        or ("Relation Name" in node and rows_read(node) > most)
    ]


def rows_read(node: dict[str, Any]) -> float:
    read: float = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
    return read


def settlement(job_id: str) -> Settlement:
    return Settlement(
        job_id, 0, Status.RUNNING, Status.SUCCEEDED, NewEvent("done"), outcome=Outcome.SUCCEEDED, result="{}"
    )


async def claim_plan(session: Any, *queues: str, limit: int = 50, floor: int = 0) -> list[dict[str, Any]]:
    floors = [floor] * len(queues)
    return await explain(session, claim_verb.CLAIM, T0, queues, floors, limit, "w", 1_000, 1, True)


async def test_a_claim_reads_only_what_it_takes(session: Any) -> None:
    for queues in (("q1",), ("none", "q3", "q2")):
        nodes = await claim_plan(session, *queues)
        assert {"inbox_jobs_claimable", "inbox_jobs_delayed"} <= indexes(nodes)
        assert read_much(nodes, 51) == []


async def test_a_claim_for_a_tenant_reads_the_line_alone(session: Any) -> None:
    assert claim_verb.CLAIM != claim_verb.CLAIM_OF_TENANTS
    for queues in (("q1",), ("none", "q3", "q2")):
        request = (T0, queues, [0] * len(queues), 20, "w", 1_000, 1, True, ["r3", "r77"])
        nodes = await explain(session, claim_verb.CLAIM_OF_TENANTS, *request)
        used = indexes(nodes)  # the line, or the tenants' own jobs where these are few
        assert "inbox_jobs_delayed" in used
        assert used & {"inbox_jobs_claimable", "inbox_jobs_queued_of_requester"}
        assert read_much(nodes, ROWS // 4 * len(queues)) == []
        taken_jobs = [node for node in nodes if node["Node Type"] == "ModifyTable"]
        assert 0 < max(node["Actual Rows"] for node in taken_jobs) <= 20


async def test_what_is_due_is_one_probe_for_each_queue(session: Any) -> None:
    nodes = await explain(session, Q.due, T0 + ROWS, ["none", "q3", "q2"], [0, 0, 0])
    assert {"inbox_jobs_claimable", "inbox_jobs_delayed"} <= indexes(nodes)
    assert read_much(nodes, 3) == []


async def test_dependents_are_found_by_their_parents(session: Any) -> None:
    nodes = await explain(session, Q.lock_dependents, ["00000000-0000-0000-0000-000000000000"])
    assert {"job_dependencies_pkey", "inbox_jobs_pkey"} <= indexes(nodes)
    assert read_much(nodes, 1) == []


async def test_a_claim_sorts_no_jobs(session: Any) -> None:
    sorts = [n for n in await claim_plan(session, "q1") if n["Node Type"] in ("Sort", "Incremental Sort")]
    assert [node for node in sorts if node["Actual Rows"] > 1] == []


async def test_the_floor_is_an_index_condition(session: Any) -> None:
    nodes = await claim_plan(session, "q1", floor=5_000)
    (scan,) = [n for n in nodes if n.get("Index Name") == "inbox_jobs_claimable"]
    assert "floor" in scan["Index Cond"]


async def test_a_settle_finds_its_jobs_by_primary_key(session: Any) -> None:
    ids = [row[0] for row in await session.fetch("SELECT job_id FROM inbox_jobs WHERE status = 'running' LIMIT 100")]
    run = list(enumerate(map(settlement, ids)))
    nodes = await explain(session, Q.settle, *settle_verb._parameters(run, T0, alone=True))
    assert "inbox_jobs_pkey" in indexes(nodes)
    assert read_much(nodes, 100) == []


async def test_a_history_is_read_by_primary_keys(session: Any) -> None:
    ids = [row[0] for row in await session.fetch("SELECT job_id FROM inbox_jobs LIMIT 50")]
    nodes = await explain(session, Q.events, ids, [0] * 50, 100)
    assert {"inbox_jobs_pkey", "job_events_pkey"} == indexes(nodes)
    assert read_much(nodes, 100) == []


async def test_successes_find_their_jobs_by_primary_key(session: Any) -> None:
    ids = [row[0] for row in await session.fetch("SELECT job_id FROM inbox_jobs WHERE status = 'running' LIMIT 100")]
    nodes = await explain(session, Q.succeed, T0, ",".join(ids), [0], '["null"]', '[""]')
    assert {"inbox_jobs_pkey"} == indexes(nodes)
    assert read_much(nodes, 100) == []


@pytest.mark.parametrize(
    ("verb", "parameters", "index", "most"),
    [
        ("with_expired_lease", (T0 + 10, 100), "inbox_jobs_leased", 100),
        ("line_up_due", (T0 + 100, "q1", 1_000), "inbox_jobs_delayed", 30),
        ("with_failed_dependency", (10,), "inbox_jobs_broken", 10),
        ("line_start", ("q1", 0, T0, 1_000), "inbox_jobs_claimable", 4),
        ("line_start", ("q1", 0, T0 + ROWS, 1_000), "inbox_jobs_ended", 4),
        ("admit", (["key1", "key2"],), "inbox_jobs_waiting_for_slot", 2),
        ("delayed_queues", (), "inbox_jobs_delayed", 5),
        ("keys_waiting", (), "inbox_jobs_waiting_for_slot", 51),
        ("prune", (T0, T0 + 20, 100), "inbox_jobs_ended", 100),
        ("find_of_requester", (None, "r7", *[None] * 6, 20, None, None, None), "job_register_of_requester", 20),
        ("find", (*[None] * 8, 20, None, None, None), "job_register_pkey", 20),
        ("find", (*[None] * 8, 20, "nowhere", 5 * ROWS - 99, None), "job_register_pkey", 101),
        ("find_ended_badly", (None, "r7", *[None] * 6, 20, None, None, None), "inbox_jobs_ended_badly", 20),
        ("ended_counts", (T0 + ROWS - 99, 10_000, None), "inbox_jobs_ended", 101),
        ("dead_letters", (None,), "inbox_jobs_ended_badly", 20),
        ("find_floor", (None, 20), "job_register_pkey", 20),
    ],
)
async def test_a_verb_reads_little_by_its_index(
    session: Any, verb: str, parameters: tuple[object, ...], index: str, most: int
) -> None:
    nodes = await explain(session, getattr(Q, verb), *parameters)
    assert index in indexes(nodes)
    assert read_much(nodes, most) == []
