from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from typing import Any

import pytest

from callsheet import Callsheet
from callsheet.worker import health as health_module
from callsheet.worker.health import Health
from tests.running_worker import until
from tests.telemetry.conftest import HOST, ask, send, working
from tests.time_limits import within


@pytest.fixture
def app_with_task(app: Callsheet) -> Callsheet:
    @app.task
    async def nothing() -> None: ...

    return app


async def test_a_worker_is_alive_before_it_is_ready(app_with_task: Callsheet) -> None:
    async with Health(app_with_task.worker(), HOST, 0) as health:
        assert (await ask(health, "/livez")).status == 200
        reply = await ask(health, "/readyz")
        assert reply.status == 503
        assert json.loads(reply.body)["reason"] == "the worker has not begun, or has ended"
    with pytest.raises(ConnectionError):
        await ask(health, "/livez")


async def test_a_worker_that_claims_is_ready(app_with_task: Callsheet) -> None:
    async with working(app_with_task) as (worker, health):
        reply = await ask(health, "/readyz")
        assert (reply.status, json.loads(reply.body)) == (200, {"ready": True})
        worker.stop()
        reply = await ask(health, "/readyz")
        assert (reply.status, json.loads(reply.body)["ready"]) == (503, False)


async def test_readiness_is_red_while_the_claim_loop_hangs(app_with_task: Callsheet) -> None:
    async with working(app_with_task) as (worker, health):
        engine: Any = worker.engine
        claim, hangs, go_on = engine.claim, asyncio.Event(), asyncio.Event()

        async def hang(*args: Any, **more: Any) -> Any:
            hangs.set()
            await go_on.wait()
            return await claim(*args, **more)

        engine.claim = hang
        try:
            await app_with_task.tasks["nothing"].enqueue()
            await hangs.wait()
            assert worker.ready
            assert worker._shift is not None
            worker._shift.polled_at -= 3 * worker.poll_s
            assert not worker.ready
            reply = await ask(health, "/readyz")
            assert reply.status == 503
            assert "the claim loop last had an answer" in json.loads(reply.body)["reason"]
            assert (await ask(health, "/livez")).status == 200
        finally:
            go_on.set()
        await until(lambda: worker.ready)
        assert (await ask(health, "/readyz")).status == 200


async def test_other_paths_and_methods_are_refused(app_with_task: Callsheet) -> None:
    async with Health(app_with_task.worker(), HOST, 0) as health:
        assert (await ask(health, "/")).status == 404
        assert (await ask(health, "/livez/more")).status == 404
        assert (await ask(health, "/livez?verbose=1")).status == 200
        reply = await ask(health, "/livez", "POST")
        assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD")
        assert (await ask(health, "/nowhere", "DELETE")).status == 405


async def test_head_answers_without_a_body(app_with_task: Callsheet) -> None:
    async with Health(app_with_task.worker(), HOST, 0) as health:
        whole, head = await ask(health, "/livez"), await ask(health, "/livez", "HEAD")
        assert (head.status, head.body) == (200, b"")
        assert head.headers == whole.headers
        assert (head.headers["connection"], int(head.headers["content-length"])) == ("close", len(whole.body))


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n",
        b"hello\r\n\r\n",
        b"GET /livez\r\n\r\n",
        b"GET /livez HTTP/2.0\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET  /livez HTTP/1.1\r\n\r\n",
        b"GET /liv\x00ez HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\xff" * 600 + b"\r\n\r\n",
        b"GET /" + b"a" * 9_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /livez HTTP/1.1\r\n" + b"X-Much: " + b"y" * 100_000,
        b"\xff" * 200_000,
    ],
    ids=lambda data: repr(data[:20]),
)
async def test_garbage_closes_the_connection(app_with_task: Callsheet, data: bytes) -> None:
    async with Health(app_with_task.worker(), HOST, 0) as health:
        assert await send(health.port, data) == b""
        assert (await ask(health, "/livez")).status == 200


async def test_a_slow_caller_is_cut_off(app_with_task: Callsheet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_module, "REQUEST_S", 0.1)
    async with Health(app_with_task.worker(), HOST, 0) as health:
        async with asyncio.timeout(60):
            assert await send(health.port, b"GET /livez HTT") == b""


async def test_a_caller_is_not_cut_off_for_our_own_slowness(
    app_with_task: Callsheet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scrape of very many series takes longer than a caller may take to ask for it.

    Every limit has expired by then.
    """
    loop, limits, limit_of = asyncio.get_running_loop(), list[asyncio.Timeout](), asyncio.timeout

    def noting(delay_s: float | None) -> asyncio.Timeout:
        limit = limit_of(delay_s)
        if delay_s == health_module.REQUEST_S:
            limits.append(limit)
        return limit

    def end_limits() -> None:
        for limit in limits:
            with contextlib.suppress(RuntimeError):  # it holds no more
                limit.reschedule(0.0)

    async with Health(app_with_task.worker(), HOST, 0) as health:
        whole = health._scrape
        assert whole is not None

        def slow() -> bytes:
            loop.call_soon_threadsafe(end_limits)
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0.01), loop).result()
            return whole()

        health._scrape = slow
        monkeypatch.setattr(health_module, "REQUEST_S", 3601.0)
        monkeypatch.setattr(asyncio, "timeout", noting)
        assert (await ask(health, "/metrics")).status == 200
        assert len(limits) == 2


async def test_an_open_connection_does_not_hold_up_the_end(
    app_with_task: Callsheet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_module, "REQUEST_S", 3600.0)
    async with Health(app_with_task.worker(), HOST, 0) as health:
        reader, writer = await asyncio.open_connection(HOST, health.port)
        writer.write(b"GET /li")
        await until(lambda: health._connections)
        start = time.monotonic()
    assert time.monotonic() - start < within(2)
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.close()


async def test_two_servers_live_in_one_process(app_with_task: Callsheet) -> None:
    async with working(app_with_task) as (one, health1), working(app_with_task) as (two, health2):
        assert health1.port != health2.port
        for health in (health1, health2):
            assert (await ask(health, "/readyz")).status == 200
            text = (await ask(health, "/metrics")).body.decode()
            for worker in (one, two):
                assert f'worker="{worker.options.worker_id}"' in text


async def test_a_port_that_is_taken_is_told(app_with_task: Callsheet) -> None:
    async with Health(app_with_task.worker(), HOST, 0) as health:
        with pytest.raises(OSError, match=str(health.port)):
            await Health(app_with_task.worker(), HOST, health.port).__aenter__()


async def test_without_the_extra_the_answer_says_how_to_install_it(
    app_with_task: Callsheet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    async with Health(app_with_task.worker(), HOST, 0) as health:
        reply = await ask(health, "/metrics")
        assert reply.status == 501
        assert b"pip install 'callsheet[metrics]'" in reply.body
        assert (await ask(health, "/livez")).status == 200
