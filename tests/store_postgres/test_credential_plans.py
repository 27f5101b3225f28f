"""Query plans of statements about credentials, with 20,000 rows; see test_plans.py."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from callsheet.store.postgres import settle as settle_verb
from tests import stores
from tests.plans import planning
from tests.store_postgres.test_plans import FILL, ROWS, T0, Q, explain, rows_read, settlement

CREDENTIALS = """
INSERT INTO job_credentials
SELECT job_id, requester_id, 1, repeat('x', 300), repeat('y', 80), 'k' || 1 + row_number() OVER () % 2, 1
FROM inbox_jobs WHERE status = 'running'
"""


@pytest.fixture(scope="module")
def filled() -> str:
    return stores.fresh_url("postgres")


@pytest.fixture(params=["direct", "pooled"])
async def session(request: pytest.FixtureRequest, filled: str) -> AsyncIterator[Any]:
    async with planning(filled, request.param, (FILL, ROWS), (CREDENTIALS,)) as session:
        yield session


def read_of_credentials(nodes: list[dict[str, Any]]) -> float:
    return sum(rows_read(node) for node in nodes if node.get("Relation Name") == "job_credentials")


async def test_a_settlement_looks_only_for_its_own_credentials(session: Any) -> None:
    ids = [row[0] for row in await session.fetch("SELECT job_id FROM inbox_jobs WHERE status = 'running' LIMIT 50")]
    run = [(i, settlement(job_id)) for i, job_id in enumerate(ids)]
    nodes = await explain(session, Q.settle, *settle_verb._parameters(run, T0, alone=True))
    assert 0 < read_of_credentials(nodes) <= 2 * 50


async def test_a_page_under_a_kek_is_read_by_its_index(session: Any) -> None:
    for after in (None, str(uuid.UUID(int=2**127))):
        nodes = await explain(session, Q.credentials_under, "k1", after, 100)
        assert any(node.get("Index Name") == "job_credentials_under_kek" for node in nodes)
        assert read_of_credentials(nodes) <= 101


async def test_a_batch_is_replaced_by_its_ids(session: Any) -> None:
    rows = await session.fetch("SELECT * FROM job_credentials LIMIT 100")
    columns = zip(*((row[0], row[2], row[4], *row[2:]) for row in rows), strict=True)
    nodes = await explain(session, Q.replace_credentials, *(list(column) for column in columns))
    assert read_of_credentials(nodes) <= 400
