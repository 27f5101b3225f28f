"""/healthz, /readyz and /metrics."""

from __future__ import annotations

import asyncio

import pytest

from callsheet.http import health
from callsheet.kernel.errors import SchemaMismatch, StoreUnavailable
from tests import stores
from tests.http.live import Live, problem, serving

FORWARDED = ({"X-Forwarded-For": "203.0.113.7"}, {"Forwarded": "for=203.0.113.7"}, {"X-Forwarded-For": "127.0.0.1"})


async def test_a_server_is_alive_and_ready_without_a_key(live: Live) -> None:
    async with live.bare() as anybody:
        assert (await anybody.get("/healthz")).json() == {"status": "ok"}
        ready = (await anybody.get("/readyz")).json()
    assert (ready["status"], ready["streams"]) == ("ready", 0)


@pytest.mark.parametrize("error", [StoreUnavailable("away"), SchemaMismatch("old")])
async def test_it_is_not_ready_while_its_store_is_away(
    small: Live, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def away() -> int:
        raise error

    monkeypatch.setattr(small.engine.store, "now", away)
    answer = await small.client.get("/readyz")
    problem(answer, 503, "store_unavailable")
    assert answer.headers["retry-after"]
    assert (await small.client.get("/healthz")).status_code == 200


async def test_it_is_not_ready_while_its_store_hangs(small: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hanging() -> int:
        await asyncio.Event().wait()
        return 0

    monkeypatch.setattr(health, "PATIENCE_S", 0.05)
    monkeypatch.setattr(small.engine.store, "now", hanging)
    problem(await small.client.get("/readyz"), 503, "store_unavailable")


async def test_it_is_not_ready_while_it_stops(small: Live) -> None:
    small.state.stop()
    answer = await small.client.get("/readyz")
    problem(answer, 503, "shutting_down")
    assert answer.headers["retry-after"]
    assert (await small.client.get("/healthz")).status_code == 200
    small.state.stop()  # twice is once


async def test_metrics_tell_how_deep_the_queues_are(live: Live) -> None:
    for _ in range(3):
        await live.job()
    answer = await live.client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    depth = [line for line in answer.text.split("\n") if line.startswith("callsheet_") and 'queue="default"' in line]
    assert any(line.endswith(" 3.0") for line in depth), answer.text


async def test_metrics_need_a_key_unless_asked_from_this_machine(small: Live) -> None:
    async with small.bare() as anybody:
        assert (await anybody.get("/metrics")).status_code == 200
        for headers in FORWARDED:
            problem(await anybody.get("/metrics", headers=headers), 401, "unauthorized")
            assert (await small.client.get("/metrics", headers=headers)).status_code == 200


@pytest.mark.parametrize("host", ["203.0.113.7", "10.0.0.1", "::ffff:10.0.0.1", "localhost.evil", ""])
async def test_metrics_need_a_key_from_elsewhere(small: Live, host: str) -> None:
    messages: list[dict[str, object]] = []

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: object) -> None:
        assert isinstance(message, dict)
        messages.append(message)

    scope = {"type": "http", "method": "GET", "path": "/metrics", "raw_path": b"/metrics", "query_string": b""}
    more = {
        "headers": [(b"host", b"x")],
        "client": (host, 1),
        "server": ("x", 80),
        "scheme": "http",
        "http_version": "1.1",
    }
    await small.server._app({**scope, **more, "asgi": {"version": "3.0"}}, receive, send)
    assert messages[0]["status"] == 401


async def test_a_server_without_keys_lets_everybody_in() -> None:
    async with serving(stores.fresh_url("sqlite"), auth=False) as live, live.bare() as anybody:
        job_id = await live.job(anybody)
        assert (await anybody.get(f"/v1/jobs/{job_id}")).status_code == 200
        assert (await anybody.get("/metrics", headers=FORWARDED[0])).status_code == 200
        body = (await anybody.post("/v1/events/ticket")).json()
        async with anybody.stream("GET", body["url"]) as answer:
            assert answer.status_code == 200
