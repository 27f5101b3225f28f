"""Contract 003 with its transport, through a real server: a worker receives a real message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from callsheet.contracts.control_plane import routes
from callsheet.contracts.control_plane import waiting as waiting_module
from callsheet.engine.transport import Transport
from callsheet.kernel.job import Status
from tests import stores
from tests.contracts.control_plane.remote import Remote, add, parked
from tests.http.live import Live, serving
from tests.transport.conftest import NEVER, Stream, rigged, silence


@pytest.fixture
async def live(url: str, redis_url: str) -> AsyncIterator[Live]:
    async with (
        serving(url, routers=[routes.router]) as live,
        Transport(live.engine.store, redis_url, NEVER) as transport,
    ):
        live.engine.transport = transport
        yield live
        live.engine.transport = None


async def test_a_worker_is_given_its_message_and_the_end_acknowledges_it(live: Live, stream: Stream) -> None:
    worker, job_id = Remote(live), await add(live)
    claim = await worker.claim()
    assert claim["stream"] == stream.key()
    assert stream.entries() == [(claim["message_id"], {"job_id": job_id, "enqueue_id": f"{job_id}.0"})]
    assert list(stream.pending()) == [claim["message_id"]]
    stream.redis.xack(claim["stream"], "workers", claim["message_id"])  # as the contract asks of a worker
    assert (await worker.say("complete", claim, result=1)).json() == {"ok": True, "ack": True}
    assert live.engine.transport is not None
    await live.engine.transport.flush(60)
    assert stream.entries() == []


async def test_a_stream_may_be_asked_for_by_the_name_that_a_claim_tells(live: Live, stream: Stream) -> None:
    first, second = await add(live), await add(live)
    worker = Remote(live)
    claim = await worker.claim("default")
    again = await worker.claim("other", claim["stream"])
    assert [claim["job_id"], again["job_id"]] == [first, second]
    assert claim["stream"] == again["stream"] == stream.key()


async def test_a_failure_that_runs_again_is_a_new_message(live: Live, stream: Stream) -> None:
    worker, job_id = Remote(live), await add(live, retry='{"backoff":{"table_ms":[0]}}')
    first = await worker.claim()
    assert (await worker.say("fail", first, error={"code": "x"})).json()["requeued"]
    second = await worker.claim()
    assert second["job_id"] == job_id
    assert second["message_id"] != first["message_id"]
    assert stream.stays() == [f"{job_id}.1"]


async def test_a_parked_claim_is_woken_by_a_message_alone(
    live: Live, url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_module, "POLL_S", (3600.0, 3600.0))
    live.engine.store.hints = silence  # type: ignore[method-assign]
    waiting = asyncio.create_task(Remote(live).claim("media", wait_ms=60_000))
    await parked(live, 1)
    async with rigged(url, redis_url) as producer:
        new = await producer.add(queue="media", contract="control_plane")
        assert (await waiting)["job_id"] == new.job_id


async def test_without_redis_a_claim_is_answered_all_the_same() -> None:
    async with (
        serving(stores.fresh_url("sqlite"), routers=[routes.router]) as live,
        Transport(live.engine.store, "redis://127.0.0.1:1/0", NEVER) as transport,
    ):
        live.engine.transport = transport
        job_id = await add(live)
        claim = await Remote(live).claim()
        assert (claim["job_id"], claim["stream"], bool(claim["message_id"])) == (job_id, "default", True)
        assert (await Remote(live).say("complete", claim, result=1)).json()["ack"]
        assert (await live.engine.get(job_id)).status is Status.SUCCEEDED
        live.engine.transport = None
