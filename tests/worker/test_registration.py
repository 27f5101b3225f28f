"""A worker tells the store which tasks it serves; servers show and check them."""

from __future__ import annotations

from typing import Literal

import pytest

from callsheet import Callsheet, Context
from callsheet.engine.task_register import FORGET_MS, RENEW_MS, TaskRecord, forget_old, register, task_records
from callsheet.store.protocol import Document, Store
from tests import stores
from tests.running_worker import until, working

T0 = 1_800_000_000_000


@pytest.fixture(params=stores.THREE)
async def url(request: pytest.FixtureRequest) -> str:
    return stores.ready_url(str(request.param))


async def test_a_worker_registers_its_tasks_with_their_schemas(url: str) -> None:
    app = Callsheet(url)

    @app.task(queue="media", priority=3, max_attempts=5, timeout="10m")
    async def resize(ctx: Context, url: str, width: int = 640, *, fit: Literal["in", "out"] = "in") -> dict[str, int]:
        """Make a picture smaller."""
        return {"width": width}

    async with app, working(app):
        store = (await app.engine()).store
        await until(lambda: _has_records(store))
        (record,) = await task_records(store)
    assert (record.name, record.queue, record.priority, record.max_attempts) == ("resize", "media", 3, 5)
    assert (record.timeout_s, record.description) == (600, "Make a picture smaller.")
    assert record.arguments is not None
    assert record.arguments["required"] == ["url"]
    assert record.arguments["additionalProperties"] is False
    assert record.arguments["properties"]["fit"]["enum"] == ["in", "out"]
    assert record.result is not None
    assert record.result["additionalProperties"] == {"type": "integer"}


async def _has_records(store: Store) -> bool:
    return bool(await task_records(store))


async def test_a_record_is_written_when_it_is_new_changed_or_old(url: str) -> None:
    async with Callsheet(url) as app:
        store = (await app.engine()).store
        one = TaskRecord("a")
        assert await register(store, [one], now=T0) == 1
        assert await register(store, [one], now=T0 + 1) == 0
        assert await register(store, [one._replace(queue="q")], now=T0 + 2) == 1
        assert await register(store, [one._replace(queue="q")], now=T0 + 2 + RENEW_MS) == 1
        assert await register(store, [TaskRecord("a"), TaskRecord("b")], tenants={"x", "y"}, now=T0) == 4
        assert await register(store, [TaskRecord("c")], tenants=(), now=T0) == 0, "bound to no tenant is not for all"
        names = [(record.name, record.tenant) for record in await task_records(store, now=T0)]
        assert names == [("a", ""), ("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")]


async def test_a_task_that_nobody_serves_any_more_is_forgotten(url: str) -> None:
    async with Callsheet(url) as app:
        store = (await app.engine()).store
        await register(store, [TaskRecord("old")], now=T0)
        await register(store, [TaskRecord("young")], now=T0 + FORGET_MS)
        assert [record.name for record in await task_records(store, now=T0 + FORGET_MS)] == ["young"]
        assert await forget_old(store, now=T0 + FORGET_MS) == 1
        assert [document.id for document in await store.documents("task")] == ["young"]


async def test_a_schema_that_is_too_large_is_left_out(url: str) -> None:
    async with Callsheet(url) as app:
        store = (await app.engine()).store
        await register(
            store, [TaskRecord("a", arguments={"description": "x" * 40_000}, result={"type": "null"})], now=T0
        )
        (record,) = await task_records(store, now=T0)
        assert (record.arguments, record.result) == (None, {"type": "null"})


async def test_a_record_of_a_later_version_is_read(url: str) -> None:
    async with Callsheet(url) as app:
        store = (await app.engine()).store
        body = f'{{"name": "a", "seen_at": {T0}, "colour": "green"}}'
        await store.put_document(Document("task", "a", body, 0))
        assert [record.name for record in await task_records(store, now=T0)] == ["a"]
