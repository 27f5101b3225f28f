from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from callsheet.api import webhook_deliveries, webhook_endpoints
from callsheet.engine import Engine
from callsheet.kernel.errors import DocumentConflict
from callsheet.net.guard import Rules
from callsheet.outbox import Endpoints
from callsheet.outbox.replay import Selection, replay_many
from tests import stores
from tests.http.live import Live, problem, serving
from tests.outbox import kit
from tests.outbox.kit import add_events, delivering, until
from tests.outbox.sink import RULES, Sink, answer

ROUTERS = [webhook_deliveries.router, webhook_endpoints.router]
HOOK = {"url": "https://hooks.example.org/x"}


@pytest.fixture
async def live() -> AsyncIterator[Live]:
    async with serving(stores.fresh_url("sqlite"), routers=ROUTERS) as live:
        live.state.endpoints = Endpoints(live.engine.store, kit.sealer(), Rules())
        yield live


def endpoints(live: Live) -> Endpoints:
    """Return the server's endpoints with loopback allowed."""
    endpoint_registry = live.state.endpoints
    assert endpoint_registry is not None
    endpoint_registry.rules = RULES
    return endpoint_registry


async def test_an_endpoint_lives_and_its_secret_is_shown_once(live: Live) -> None:
    response = await live.client.post("/v1/webhooks/endpoints", json={**HOOK, "description": "ours"})
    assert (response.status_code, response.headers["cache-control"]) == (201, "no-store")
    body = response.json()
    path = f"/v1/webhooks/endpoints/{body['endpoint_id']}"
    assert body["secret"].startswith("whsec_")
    assert (body["health"]["state"], body["description"]) == ("closed", "ours")
    read = await live.client.get(path)
    listing = await live.client.get("/v1/webhooks/endpoints")
    for text in (read.text, listing.text):
        assert body["secret"] not in text
        assert "sealed" not in text
    assert listing.json()["endpoints"] == [read.json()]
    changes = await live.client.patch(path, json={"url": "https://hooks.example.org/y"})
    assert changes.json()["url"] == "https://hooks.example.org/y"
    rotation = (await live.client.post(f"{path}/rotate")).json()
    assert rotation["secret"] not in ("", body["secret"])
    assert [s["expires_at"] is None for s in rotation["secrets"]] == [True, False]
    assert (await live.client.post(f"{path}/disable")).json()["disabled_reason"] == "asked"
    assert (await live.client.post(f"{path}/enable")).json()["disabled_at"] is None
    assert (await live.client.delete(path)).status_code == 204
    problem(await live.client.get(path), 404, "endpoint_not_found")


@pytest.mark.parametrize(
    "url", ["http://example.org/", "https://127.0.0.1/", "https://[::1]/", "https://u:p@example.org/", "x", ""]
)
async def test_a_target_that_is_not_allowed_is_refused_with_its_reason(live: Live, url: str) -> None:
    problem(await live.client.post("/v1/webhooks/endpoints", json={"url": url}), 422, "invalid_target")


async def test_bad_bodies_are_told(live: Live) -> None:
    for body in ({}, {"url": 5}, {**HOOK, "more": 1}, {"url": "a\x00b"}):
        response = await live.client.post("/v1/webhooks/endpoints", json=body)
        assert (response.status_code, response.json()["code"]) in {(422, "validation_failed"), (422, "invalid_target")}
    for body in ({"rate": 0}, {"limit": 0}, {"status": "pending"}, {"created_from": -1}):
        problem(await live.client.post("/v1/webhooks/deliveries/replay", json=body), 422, "validation_failed")
    problem(await live.client.get("/v1/webhooks/deliveries?status=lost"), 422, "validation_failed")
    problem(await live.client.post("/v1/webhooks/secret", json={"overlap_s": -1}), 422, "validation_failed")


async def test_a_server_without_keys_says_what_to_set() -> None:
    from callsheet.app.sealing import sealer_from  # noqa: PLC0415

    async with serving(stores.fresh_url("sqlite"), routers=ROUTERS) as live:
        problem(await live.client.post("/v1/webhooks/endpoints", json=HOOK), 503, "webhooks_off")
        live.state.endpoints = Endpoints(live.engine.store, sealer_from({}))
        details = problem(await live.client.post("/v1/webhooks/endpoints", json=HOOK), 503, "no_keyring")
        assert "CALLSHEET_KEYS_FILE" in details["detail"]


async def test_deliveries_are_listed_read_and_sent_again(live: Live, sink: Sink) -> None:
    sink.turns = [answer("410 Gone", b"go away"), answer()]
    endpoint_registry = endpoints(live)
    await endpoint_registry.new_own_secret("acme")
    async with delivering(live.engine, endpoint_registry):
        (dead,) = await add_events(live.engine, sink.url)
        await until(live.engine, [dead], "dead_letter")
        (good,) = await add_events(live.engine, sink.url)
        await until(live.engine, [good], "delivered")
        page = (await live.client.get("/v1/webhooks/deliveries?limit=1")).json()
        assert ([d["event_id"] for d in page["deliveries"]], page["next"]) == ([good], good)
        rest = (await live.client.get(f"/v1/webhooks/deliveries?limit=1&cursor={page['next']}")).json()
        assert ([d["event_id"] for d in rest["deliveries"]], rest["next"]) == ([dead], None)
        one = (await live.client.get(f"/v1/webhooks/deliveries/{dead}")).json()
        assert (one["reason"], one["response"], one["log"][0]["status"]) == ("gone", "go away", 410)
        assert one["body"]["event_id"] == dead
        for query in ("status=dead_letter", f"job_id={one['job_id']}"):
            listing = (await live.client.get(f"/v1/webhooks/deliveries?{query}")).json()["deliveries"]
            assert [d["event_id"] for d in listing] == [dead]
        again = await live.client.post(f"/v1/webhooks/deliveries/{dead}/replay")
        assert again.status_code == 202
        await until(live.engine, [dead], "delivered")
        assert sink.ids() == [dead, good, dead]
        assert sink.got[0].body == sink.got[2].body
    for path in ("no-such", "a.b", "%00", "x" * 200):
        problem(await live.client.get(f"/v1/webhooks/deliveries/{path}"), 404, "delivery_not_found")
        problem(await live.client.post(f"/v1/webhooks/deliveries/{path}/replay"), 404, "delivery_not_found")


async def test_many_are_sent_again_at_a_rate_and_asking_twice_is_asking_once(live: Live, sink: Sink) -> None:
    ids = await add_events(live.engine, *[sink.url] * 20)
    async with delivering(live.engine, endpoints(live)):
        await until(live.engine, ids, "dead_letter")  # there is no secret yet
    body = {"rate": 50, "endpoint": sink.url}
    first = await live.client.post("/v1/webhooks/deliveries/replay", json=body)
    assert (first.status_code, first.json()) == (202, {"replayed": 20, "more": False})
    assert (await live.client.post("/v1/webhooks/deliveries/replay", json=body)).json()["replayed"] == 0
    waits = [d["next_attempt_at"] for d in (await live.client.get("/v1/webhooks/deliveries")).json()["deliveries"]]
    steps = {a - b for a, b in itertools.pairwise(waits)}
    assert steps == {20}
    endpoint_registry = endpoints(live)
    await endpoint_registry.new_own_secret("acme")
    async with delivering(live.engine, endpoint_registry):
        await until(live.engine, ids, "delivered")
    assert sorted(sink.ids()) == sorted(ids)


async def test_enabling_sends_what_came_meanwhile(live: Live, sink: Sink) -> None:
    endpoint_registry = endpoints(live)
    endpoint, _ = await endpoint_registry.create("acme", sink.url)
    path = f"/v1/webhooks/endpoints/{endpoint.endpoint_id}"
    await live.client.post(f"{path}/disable")
    async with delivering(live.engine, endpoint_registry):
        ids = await add_events(live.engine, *[endpoint.endpoint_id] * 5)
        await until(live.engine, ids, "dead_letter")
    assert not sink.got
    await live.client.post(f"{path}/enable", json={"rate": 1000})
    async with delivering(live.engine, endpoint_registry):
        await until(live.engine, ids, "delivered")


async def test_a_limit_and_a_range_bound_a_replay(engine: Engine, endpoints: Endpoints, sink: Sink) -> None:
    ids = await add_events(engine, *[sink.url] * 5)
    async with delivering(engine, endpoints):
        rows = await until(engine, ids, "dead_letter")
    assert await replay_many(engine.store, Selection("acme", limit=2)) == (2, True)
    assert await replay_many(engine.store, Selection("acme", created_to=rows[0].created_at)) == (0, False)
    assert await replay_many(engine.store, Selection("mallory")) == (0, False)
    assert await replay_many(engine.store, Selection("acme", reason="gone")) == (0, False)
    assert await replay_many(engine.store, Selection("acme", reason="no_secret")) == (3, False)


async def test_another_tenant_finds_nothing_behind_any_route(live: Live, sink: Sink) -> None:
    mine, theirs = await live.key("acme"), await live.key("mallory")
    endpoint = (await mine.post("/v1/webhooks/endpoints", json=HOOK)).json()
    await mine.post("/v1/webhooks/secret")
    (event_id,) = await add_events(live.engine, sink.url)
    one, event = f"/v1/webhooks/endpoints/{endpoint['endpoint_id']}", f"/v1/webhooks/deliveries/{event_id}"
    requests: list[tuple[str, str, dict[str, Any] | None, str]] = [
        ("GET", one, None, "endpoint_not_found"),
        ("PATCH", one, {"url": HOOK["url"]}, "endpoint_not_found"),
        ("DELETE", one, None, "endpoint_not_found"),
        ("POST", f"{one}/rotate", None, "endpoint_not_found"),
        ("POST", f"{one}/disable", None, "endpoint_not_found"),
        ("POST", f"{one}/enable", None, "endpoint_not_found"),
        ("GET", "/v1/webhooks/secret", None, "endpoint_not_found"),
        ("GET", event, None, "delivery_not_found"),
        ("POST", f"{event}/replay", None, "delivery_not_found"),
    ]
    for method, path, body, code in requests:
        problem(await theirs.request(method, path, json=body), 404, code)
    assert (await theirs.get("/v1/webhooks/endpoints")).json() == {"endpoints": []}
    assert (await theirs.get("/v1/webhooks/deliveries")).json() == {"deliveries": [], "next": None}
    assert (await theirs.get(f"/v1/webhooks/deliveries?cursor={event_id}")).json()["deliveries"] == []
    assert (await theirs.post("/v1/webhooks/deliveries/replay")).json()["replayed"] == 0
    assert (await theirs.get("/v1/webhooks/destinations")).json() == {"destinations": []}
    assert (await mine.get(one)).status_code == 200
    assert (await mine.get(event)).status_code == 200
    for client in (mine, theirs):
        await client.aclose()


async def test_every_route_asks_for_a_key_and_a_scope(live: Live) -> None:
    reader = await live.key("acme", scopes=["jobs:read"])
    paths = (await live.client.get("/openapi.json")).json()["paths"]
    bare = live.bare()
    for path, operations in paths.items():
        for method in operations if path.startswith("/v1/webhooks") else ():
            where = path.replace("{endpoint_id}", "whe_x").replace("{event_id}", "e")
            problem(await bare.request(method, where), 401, "unauthorized")
            if method != "get":
                problem(await reader.request(method, where), 403, "forbidden")
    for client in (bare, reader):
        await client.aclose()


async def test_of_two_changes_at_once_one_is_told_to_try_again(live: Live) -> None:
    endpoint_registry = live.state.endpoints
    assert endpoint_registry is not None
    endpoint, _ = await endpoint_registry.create("acme", HOOK["url"])
    await endpoint_registry.change(endpoint.endpoint_id, "acme", description="first")
    with pytest.raises(DocumentConflict):
        await endpoint_registry._save(endpoint._replace(description="second"))


async def test_there_is_a_limit_to_endpoints(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callsheet.outbox.endpoints.MOST_ENDPOINTS", 1)
    answers: list[httpx2.Response] = [await live.client.post("/v1/webhooks/endpoints", json=HOOK) for _ in range(2)]
    problem(answers[1], 409, "too_many_endpoints")
