"""Every route times every caller who has no business there, on each store.

The running app provides the routes. Each route has a row in `routes.py`; one without a row fails the first test.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from callsheet.http.keys import ApiKeys
from callsheet.http.middleware import REPEATABLE
from callsheet.http.sessions import COOKIE
from tests import stores
from tests.security.estate import SECRET, STRANGER, VICTIM, Town, town
from tests.security.routes import ADMIN, OPEN, PAGE, READ, ROUTES, SESSION, SIGNED, WORKER, WRITE, Route

KEYED = [route for route in ROUTES if route.scope not in {OPEN, PAGE, SESSION, SIGNED}]
OWNED = [route for route in KEYED if route.owned]
SCOPES = (READ, WRITE, WORKER)
SAFE = {"GET", "HEAD"}
BROKEN: dict[str, Any] = {
    "no key": {},
    "an empty key": {"Authorization": "Bearer"},
    "another scheme": {"Authorization": "Basic YWRtaW46YWRtaW4="},
    "junk": {"Authorization": "Bearer junk"},
    "two keys in one": {"Authorization": "Bearer cs_live_a, cs_live_b"},
    "a key with a wrong checksum": {"X-API-Key": "cs_live_" + "a" * 48},
    "a worker's token that nobody has": {"Authorization": "Bearer cs_worker_" + "a" * 48},
    "an enrolment token": {"Authorization": "Bearer cs_enroll_" + "a" * 48},
    "bytes that are no text": {b"X-API-Key": b"cs_live_\xff\xfe"},
    "a cookie that nobody has": {"Cookie": f"{COOKIE}=nothing", "X-Callsheet-Studio": "1"},
}


@pytest.fixture(params=stores.THREE)
async def here(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Town]:
    async with town(request.param, tmp_path) as here:
        yield here


def routes_of(routes: list[Any]) -> Iterator[tuple[str, str]]:
    """The method and path of every route below an app, with those of routers that it includes."""
    for route in routes:
        if hasattr(route, "original_router"):
            yield from routes_of(route.original_router.routes)
        else:
            assert hasattr(route, "path"), f"{route!r} is a kind of route that this test does not know"
            for method in sorted(getattr(route, "methods", None) or {"ANY"}):
                if (method, "GET") != ("HEAD", "GET") or "GET" not in route.methods:
                    yield method, route.path


async def test_every_route_of_the_running_app_has_a_row(here: Town) -> None:
    routes_there = list(routes_of(here.live.server.config.app.routes))  # type: ignore[union-attr]
    assert len(routes_there) > 90
    assert sorted(routes_there) == sorted((route.method, route.template) for route in ROUTES)


async def test_the_parameters_that_may_be_given_again_are_the_lists_of_the_document(here: Town) -> None:
    paths = here.live.server.config.app.openapi()["paths"]  # type: ignore[union-attr]
    arguments = [each for methods in paths.values() for one in methods.values() for each in one.get("parameters", ())]
    lists = {each["name"] for each in arguments if each["in"] == "query" and '"array"' in json.dumps(each["schema"])}
    assert lists == REPEATABLE


async def call(client: httpx2.AsyncClient, here: Town, route: Route, **more: Any) -> httpx2.Response:
    """Call a route about the victim's things."""
    path = here.estate.fill(route.path or route.template)
    body = {} if route.body is None else {"json": here.estate.fill(route.body)}
    async with client.stream(route.method, path, **body, **more) as answer:
        if not route.stream or answer.status_code != 200:
            await answer.aread()
    return answer


def text_of(answer: httpx2.Response) -> str:
    return answer.text if answer.is_stream_consumed else ""


def refused(answer: httpx2.Response, route: Route, caller: str, *statuses: int) -> None:
    """Assert a problem with one of these statuses and without the victim's data."""
    assert answer.status_code in statuses, f"{caller}, {route.name}: {answer.status_code} {text_of(answer)[:300]}"
    assert answer.headers["content-type"] == "application/problem+json", f"{caller}, {route.name}"
    assert SECRET not in text_of(answer), f"{caller}, {route.name}"


async def test_nobody_without_a_key_gets_past_any_route(here: Town) -> None:
    async with here.live.bare() as nobody:
        for route in KEYED:
            for caller, headers in BROKEN.items():
                refused(await call(nobody, here, route, headers=headers), route, caller, 401)


async def test_revoked_and_expired_keys_get_past_no_route(here: Town) -> None:
    keys = ApiKeys(here.live.engine.store)
    revoked_key, key = await keys.create("revoked", requester_id=VICTIM, scopes=[*SCOPES, ADMIN])
    expired_key, _ = await keys.create("expired", requester_id=VICTIM, scopes=[*SCOPES, ADMIN], ttl_s=0)
    assert await keys.revoke(key.key_id)
    async with here.live.bare() as nobody:
        for route in KEYED:
            for caller, text in {"revoked": revoked_key, "expired": expired_key}.items():
                refused(await call(nobody, here, route, headers={"X-API-Key": text}), route, caller, 401)


async def test_a_key_of_the_tenant_without_the_scope_gets_past_no_route(here: Town) -> None:
    for needed in (*SCOPES, ADMIN):
        others = [scope for scope in SCOPES if scope != needed]
        async with await here.live.key(VICTIM, scopes=others) as client:
            for route in (route for route in KEYED if route.scope == needed):
                refused(await call(client, here, route), route, f"a key without {needed}", 403)


async def test_another_tenant_is_told_that_there_is_no_such_thing(here: Town) -> None:
    async with await here.live.key(STRANGER, scopes=SCOPES) as stranger:
        for route in OWNED:
            refused(await call(stranger, here, route), route, "a stranger", 404)
    async with await here.live.key("", scopes=SCOPES) as nobody:
        for route in OWNED:
            refused(await call(nobody, here, route), route, "a key of no tenant", 404)


async def test_lists_and_searches_of_another_tenant_show_nothing_of_the_victim(here: Town) -> None:
    ids = [value for value in vars(here.estate).values() if len(value) > 8]
    async with await here.live.key(STRANGER, scopes=SCOPES) as stranger:
        lists = (route for route in KEYED if route.method == "GET" and not route.owned and route.scope in {READ, WRITE})
        for route in lists:
            answer = await call(stranger, here, route)
            assert answer.status_code in {200, 404}, f"{route.name}: {text_of(answer)}"  # 404: it has no secret yet
            texts = [part for part in (SECRET, VICTIM, *ids) if part in text_of(answer)]
            assert texts == [], f"{route.name} shows {texts}"


async def test_the_owner_gets_past_every_route_that_strangers_do_not(here: Town) -> None:
    """Otherwise a route that refuses everybody would pass every other test here."""
    async with await here.live.key(VICTIM, scopes=(READ, WRITE)) as owner:
        for route in OWNED:
            answer = await call(owner, here, route)
            assert answer.status_code not in {401, 403, 404, 500}, f"{route.name}: {text_of(answer)[:300]}"


async def test_a_worker_gets_past_the_workers_routes_alone(here: Town) -> None:
    for queues, tenants in ((["estate"], [STRANGER]), (["elsewhere"], [VICTIM])):
        token, _ = await enrolled(here, queues, tenants)
        async with here.live.bare() as worker:
            worker.headers["Authorization"] = f"Bearer {token}"
            for route in KEYED:
                if route.scope != WORKER:
                    refused(await call(worker, here, route), route, f"a worker of {tenants}", 403)


async def test_a_worker_of_another_tenant_or_queue_touches_no_lease(here: Town) -> None:
    """The stranger knows the job, the worker's name and the token, but did not claim the job."""
    for queues, tenants in ((["estate"], [STRANGER]), (["elsewhere"], [VICTIM])):
        token, worker_id = await enrolled(here, queues, tenants)
        async with here.live.bare() as worker:
            worker.headers["Authorization"] = f"Bearer {token}"
            for route in KEYED:
                if route.scope == WORKER and "{lease_token}" in str(route.body):
                    own = route._replace(body={**route.body, "worker_id": worker_id})
                    for row in (route, own):
                        refused(await call(worker, here, row), row, f"a worker of {tenants}", 403, 404)
            claim = {"worker_id": worker_id, "streams": ["estate"], "max_jobs": 10}
            answer = await worker.post("/internal/worker/claim", json=claim)
            assert answer.status_code == 403 or answer.json()["claimed"] is False
    held = await here.live.engine.get(here.estate.running_id)
    assert (held.status.value, held.claim_version, held.result) == ("running", 1, None)


async def enrolled(here: Town, queues: list[str], tenants: list[str]) -> tuple[str, str]:
    """The token and the id of a new worker that may work for these queues and tenants."""
    right = {"queues": queues, "tenants": tenants}
    enrolment = (await here.live.client.post("/v1/workers/enrolments", json=right)).json()
    body = {"enrolment_token": enrolment["enrolment_token"], "worker_name": "stranger"}
    answer = (await here.live.client.post("/internal/worker/enroll", json=body)).json()
    return answer["worker_token"], answer["worker_id"]


async def test_a_revoked_worker_gets_past_no_route(here: Town) -> None:
    token, worker_id = await enrolled(here, ["estate"], [VICTIM])
    assert (await here.live.client.delete(f"/v1/workers/{worker_id}")).is_success
    async with here.live.bare() as worker:
        for route in KEYED:
            answer = await call(worker, here, route, headers={"Authorization": f"Bearer {token}"})
            refused(answer, route, "a revoked worker", 401, 403)
            assert answer.json()["code"] in {"worker_revoked", "unauthorized"}, route.name


async def test_a_session_changes_nothing_without_the_proof_of_its_page(here: Town) -> None:
    text = await here.live.text(VICTIM, scopes=[*SCOPES, ADMIN])
    proof = {"X-Callsheet-Studio": "1", "Origin": here.live.url}
    async with here.live.bare() as browser:
        assert (await browser.post("/studio/session", json={"key": text}, headers=proof)).status_code == 201
        foreign = {"no header": {"Origin": here.live.url}, "another origin": {**proof, "Origin": "https://evil.test"}}
        for route in KEYED:
            if route.method not in SAFE:
                for caller, headers in foreign.items():
                    refused(await call(browser, here, route, headers=headers), route, caller, 403)


async def test_signed_addresses_open_for_their_signature_alone(here: Town) -> None:
    async with await here.live.key(VICTIM) as owner, here.live.bare() as nobody:
        for route in (route for route in ROUTES if route.scope == SIGNED):
            for client in (owner, nobody, here.live.client):
                refused(await call(client, here, route), route, "somebody without a signature", 403)
                more = "?expires=99999999999&signature=" + "0" * 64
                forgery = await client.request(route.method, here.estate.fill(route.path) + more)
                refused(forgery, route, "somebody with a made-up signature", 403)
