"""Messages wake whoever waits for their queue, also where the store's own hints do not reach."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from callsheet import Callsheet
from callsheet.engine import Engine
from callsheet.engine.lanes import lane_name
from callsheet.kernel.errors import StoreUnavailable
from callsheet.store.hints import together
from callsheet.store.protocol import Hint
from tests import stores
from tests.store_driver import new_job
from tests.transport.conftest import Rig, Stream, rigged, silence


async def hint_of(rig: Rig, queue: str) -> Hint:
    """Of the engine's hints: the store's hints are disabled, as both would merge."""
    rig.engine.store.hints = silence  # type: ignore[method-assign]
    async for hint in rig.engine.hints():
        if queue in hint.queues:
            return hint
    raise AssertionError


async def test_a_message_wakes_a_process_that_waits_for_its_queue(url: str, redis_url: str) -> None:
    async with rigged(url, redis_url) as sender, rigged(url, redis_url) as waiter:
        assert await waiter.claim("media") == []
        waiting = asyncio.create_task(hint_of(waiter, "media"))
        await asyncio.sleep(0)
        await sender.engine.enqueue([new_job(queue="media")])
        assert (await asyncio.wait_for(waiting, 60)).queues == {"media"}
        assert len(await waiter.claim("media")) == 1


async def test_messages_are_left_to_those_who_have_use_for_them(url: str, redis_url: str, stream: Stream) -> None:
    async with rigged(url, redis_url) as idle, rigged(url, redis_url) as other, rigged(url, redis_url) as waiter:
        await idle.engine.enqueue([new_job()])
        await idle.sent()
        assert len(await idle.claim(limit=1)) == 1  # it got all that it wanted
        assert await other.claim("other") == []
        assert await waiter.claim() == []
        waiting = asyncio.create_task(hint_of(waiter, "default"))
        await idle.engine.enqueue([new_job() for _ in range(20)])
        await idle.sent()
        await asyncio.wait_for(waiting, 60)  # perhaps of the first message, which is still there
        async with asyncio.timeout(60):
            while len(stream.pending()) < 2:
                await asyncio.sleep(0.01)
        owners = set(list(stream.pending().values())[1:])
        assert owners == {waiter.transport.wire.me}


async def test_who_waits_for_a_queue_hears_of_its_lanes(url: str, redis_url: str) -> None:
    lane = lane_name("gpu", ["cuda"], "tenant one")
    async with rigged(url, redis_url) as sender, rigged(url, redis_url) as waiter:
        assert await waiter.claim("gpu") == []
        waiting = asyncio.create_task(hint_of(waiter, lane))
        await sender.engine.enqueue([new_job(queue=lane, requester_id="tenant one")])
        await asyncio.wait_for(waiting, 60)


async def test_a_worker_is_woken_by_a_message_alone(url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = Callsheet(url, redis_url=redis_url)

    @app.task
    async def add(a: int) -> int:
        return a + 1

    await app.migrate()
    async with app, Callsheet(url, redis_url=redis_url) as producer:
        engine = await app.engine()
        monkeypatch.setattr(engine.store, "hints", silence)
        worker = app.worker(poll=3600.0, housekeeping=False)
        working = asyncio.create_task(worker.run())
        async with asyncio.timeout(60):
            while engine.transport is None or not engine.transport._reader._own_groups:
                await asyncio.sleep(0.01)
            (handle,) = await producer.enqueue([add.new_job(a=1)])
            while not (await handle.get()).status.terminal:
                await asyncio.sleep(0.01)
        worker.stop()
        await working
        assert (await handle.get()).result == "2"


async def test_hints_of_several_sources_come_together_and_so_does_an_error() -> None:
    async def one() -> AsyncIterator[Hint]:
        yield Hint(frozenset({"a"}))
        await asyncio.Event().wait()

    async def broken() -> AsyncIterator[Hint]:
        yield Hint(frozenset({"b"}))
        await asyncio.sleep(0.01)
        raise StoreUnavailable("gone")

    messages: set[str] = set()
    with pytest.raises(StoreUnavailable):
        async for hint in together(one(), broken()):
            messages |= hint.queues
    assert messages == {"a", "b"}


async def test_without_a_transport_the_hints_are_those_of_the_store() -> None:
    async with Engine.from_url(stores.fresh_url("sqlite")) as engine:
        assert engine.transport is None
        assert type(engine.hints()) is type(engine.store.hints())


async def test_a_redis_store_has_no_second_redis_beside_it(redis_url: str) -> None:
    async with Engine.from_url(stores.fresh_url("redis"), redis_url=redis_url) as engine:
        assert engine.transport is None
