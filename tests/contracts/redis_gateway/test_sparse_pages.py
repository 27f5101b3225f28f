"""A list whose filter fits few jobs: one answer scans part of the store, then continues by cursor."""

from __future__ import annotations

from typing import Any

import pytest

from callsheet.contracts.redis_gateway import routes
from callsheet.engine.ids import new_ids
from callsheet.kernel.job import NewJob
from tests.http.live import Live, serving


async def rare_ones(live: Live) -> list[str]:
    """Add three jobs of a rare kind, newest first, between many others."""
    ids = new_ids(40)
    await live.engine.enqueue([NewJob(id_, "often" if n % 18 else "rare") for n, id_ in enumerate(ids)])
    return [ids[36], ids[18], ids[0]]


async def page(live: Live, **query: Any) -> tuple[list[str], str | None]:
    body = (await live.client.get("/v1/jobs", params={"task": "rare", **query})).json()
    return [job["job_id"] for job in body["jobs"]], body["next"]


@pytest.mark.parametrize("look", [5, 20])
async def test_one_answer_looks_on_until_it_is_full(url: str, look: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "LOOK", look)
    monkeypatch.setattr(routes, "PATIENCE_S", 600)
    async with serving(url) as live:
        rare = await rare_ones(live)
        assert await page(live) == (rare, None)
        first, cursor = await page(live, limit=2)
        assert first == rare[:2]
        assert await page(live, cursor=cursor) == (rare[2:], None)


async def test_a_look_that_takes_long_ends_with_a_cursor(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "LOOK", 5)
    monkeypatch.setattr(routes, "PATIENCE_S", 0)
    async with serving(url) as live:
        rare = await rare_ones(live)
        result, cursor = await page(live)
        assert result == rare[:1]
        while cursor is not None:
            more, cursor = await page(live, cursor=cursor)
            result += more
        assert result == rare
