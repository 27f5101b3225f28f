"""Redis flushed, stopped, or never there: it costs latency, never a job."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import redis as driver

from callsheet import Callsheet, Context
from callsheet.engine import Engine
from callsheet.engine.transport import transport
from callsheet.kernel.errors import InvalidInput
from callsheet.kernel.job import Status
from tests import stores
from tests.servers import RedisServer
from tests.store_driver import new_job
from tests.time_limits import within
from tests.transport.conftest import BRISK, Rig, Stream, rigged, silence

Trouble = Callable[[RedisServer], Coroutine[Any, Any, None]]


async def flushed(server: RedisServer) -> None:
    with driver.Redis.from_url(server.url()) as client:
        client.flushall()


async def restarted(server: RedisServer) -> None:
    await asyncio.to_thread(server.kill9)
    await asyncio.sleep(0.5)  # work goes on meanwhile
    await asyncio.to_thread(server.start_again)


@pytest.mark.parametrize(("kind", "trouble"), [("sqlite", flushed), ("sqlite", restarted), ("postgres", restarted)])
async def test_in_mid_run_it_loses_no_job_and_doubles_none(
    kind: str, trouble: Trouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the store's hints: polling finds jobs without messages."""
    url, ran = stores.fresh_url(kind), list[int]()
    with RedisServer.start(settings={"appendonly": "no"}) as server:
        app = Callsheet(url, redis_url=server.url())

        @app.task
        async def note(ctx: Context, n: int) -> int:
            ran.append(n)
            return n

        await app.migrate()
        async with app:
            engine = await app.engine()
            monkeypatch.setattr(engine.store, "hints", silence)
            worker = app.worker(concurrency=5)
            working = asyncio.create_task(worker.run())
            troubles = {100: trouble, 200: trouble}
            beside: list[asyncio.Task[None]] = []
            for n in range(300):
                await app.enqueue([note.new_job(n=n)])
                if n in troubles:
                    await asyncio.gather(*beside)  # one after the other: a server is not killed while it starts
                    beside.append(asyncio.create_task(troubles[n](server)))
                await asyncio.sleep(0.003)
            async with asyncio.timeout(60):
                await asyncio.gather(*beside)
                while (await engine.store.counts())["default"].get(Status.SUCCEEDED, 0) < 300:
                    await asyncio.sleep(0.02)
            worker.stop()
            await working
            assert sorted(ran) == list(range(300))
            assert engine.transport is not None
            await engine.transport.flush(60)
            with driver.Redis.from_url(server.url(), decode_responses=True) as client:
                async with asyncio.timeout(60):
                    while Stream(client).entries():
                        await engine.transport.maintenance.audit()
                        await asyncio.sleep(0.05)


async def test_it_is_told_once_that_redis_is_away_and_once_that_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "callsheet.transport")
    with RedisServer.start(settings={"appendonly": "no"}) as server:
        server.kill9()
        async with rigged(stores.fresh_url("sqlite"), server.url(), BRISK) as rig:
            for _ in range(20):
                await rig.engine.enqueue([new_job()])
                await asyncio.sleep(0.02)
            await rig.claim("nothing here")
            assert _told(caplog) == ["the transport is away, jobs are found by polling the database"]
            await asyncio.to_thread(server.start_again)
            with driver.Redis.from_url(server.url(), decode_responses=True) as client:
                async with asyncio.timeout(60):
                    while len(Stream(client).entries()) < 20:
                        await asyncio.sleep(0.01)
            assert _told(caplog)[1:] == ["the transport is back"]


def _told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage().partition(":")[0] for record in caplog.records if record.name == "callsheet.transport"]


async def test_what_waits_for_redis_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callsheet.engine.transport.sender.MOST", 100)
    async with rigged(stores.fresh_url("sqlite"), "redis://127.0.0.1:1/0") as rig:
        batch = [new_job() for _ in range(300)]
        rig.transport.on_enqueue(batch, await rig.engine.store.enqueue(batch))
        assert len(rig.transport._sender._steps) == 100
        await rig.sent()
        assert rig.transport.wire.away


async def test_a_process_that_ends_sends_what_it_has_committed(url: str, redis_url: str, stream: Stream) -> None:
    async with rigged(url, redis_url) as rig:
        await rig.engine.enqueue([new_job() for _ in range(700)])
    assert len(stream.entries()) == 700


async def test_a_stop_with_a_redis_that_is_away_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "GOODBYE_S", 3600.0)
    async with (
        asyncio.timeout(within(2)),
        rigged(stores.fresh_url("sqlite"), "redis://127.0.0.1:1/0") as rig,
    ):
        await rig.add()


@pytest.mark.parametrize(
    "wrong", ["http://h/", "redis://h:port/0", "redis://:s3cret/x@h:1/0", "redis://h/0?nonsense=1"]
)
async def test_a_wrong_url_is_told_before_anything_opens(wrong: str) -> None:
    with pytest.raises(InvalidInput) as excinfo:
        await Engine.from_url(stores.fresh_url("sqlite"), redis_url=wrong).__aenter__()
    assert "s3cret" not in str(excinfo.value)


async def test_a_redis_that_is_too_old_is_not_used(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    async def info(section: str) -> dict[str, str]:
        return {"redis_version": "6.0.9"}

    wire = rig.transport.wire
    monkeypatch.setattr(wire.redis, "info", info)
    wire._is_checked = False
    await rig.add()
    assert wire.away
