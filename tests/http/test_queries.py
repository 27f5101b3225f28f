"""A query parameter may occur once, unless it is a list."""

from __future__ import annotations

import pytest

from tests.http.live import Live, problem


@pytest.mark.parametrize("query", ["after=1&after=2", "after=&after=", "aft%65r=1&after=2", "limit=5&x=1&limit=6"])
async def test_a_parameter_that_is_given_twice_is_refused(live: Live, query: str) -> None:
    body = problem(await live.client.get(f"/v1/jobs?{query}"), 422, "validation_failed")
    assert "give this parameter once" in body["detail"]


async def test_a_list_may_be_given_value_by_value(live: Live) -> None:
    answer = await live.client.get("/v1/jobs?status=queued&status=running")
    assert answer.status_code == 200
