"""Workers get an identity by a token that is used up, keep it by rotation, and lose it when they are revoked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from fastapi import APIRouter
from starlette.requests import Request

from callsheet.api import workers
from callsheet.contracts.control_plane import enrolment, versions
from callsheet.contracts.control_plane.binding import Holder, WorkerIdentity, seen, worker_of
from callsheet.contracts.redis_gateway import routes
from callsheet.http import worker_registry as known
from callsheet.http.json_bodies import JsonAnswer
from callsheet.http.problems import Problem
from callsheet.http.state import state_of
from callsheet.store.audit import AuditQuery
from tests import stores
from tests.http.conftest import postgres_url
from tests.http.live import Live, problem, serving

probe = APIRouter()


@probe.post("/probe")
async def _probe(request: Request) -> JsonAnswer:
    """What a route of the control plane learns of a worker."""
    who = await worker_of(request)
    await seen(state_of(request), who.holder(who.worker_id or "somebody"), ("gpu",), "1.2", 3)
    queues = None if who.queues is None else sorted(who.queues)
    tenants = None if who.tenants is None else sorted(who.tenants)
    return JsonAnswer({"worker_id": who.worker_id, "queues": queues, "tenants": tenants, "drain": who.draining})


ROUTERS = [enrolment.router, workers.router, routes.router, probe]


@pytest.fixture(params=stores.THREE)
async def live(request: pytest.FixtureRequest) -> AsyncIterator[Live]:
    url = postgres_url() if request.param == "postgres" else stores.fresh_url(request.param)
    async with serving(url, routers=ROUTERS) as live:
        await stores.empty({url: live.engine.store})
        yield live


@pytest.fixture
async def small() -> AsyncIterator[Live]:
    async with serving(stores.fresh_url("sqlite"), routers=ROUTERS) as live:
        yield live


@pytest.fixture(autouse=True)
def _nothing_is_believed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "KEPT_S", 0.0)


async def invited(live: Live, **body: Any) -> str:
    answer = await live.client.post("/v1/workers/enrolments", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["enrolment_token"])


async def enroll(live: Live, token: str, **fields: Any) -> httpx2.Response:
    async with live.bare() as anybody:
        return await anybody.post(
            "/internal/worker/enroll", json={"enrolment_token": token, "worker_name": "gpu1", **fields}
        )


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


async def enrolled(live: Live, **body: Any) -> dict[str, Any]:
    answer = await enroll(live, await invited(live, **body))
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


async def call(live: Live, token: str, path: str = "/probe") -> httpx2.Response:
    async with live.bare() as anybody:
        return await anybody.post(path, headers=bearer(token))


async def test_an_enrolment_becomes_a_worker_of_its_queues_and_tenants(live: Live) -> None:
    token = await invited(live, queues=["media", "default"], tenants=["acme"])
    answer = await enroll(live, token, labels=["gpu"], version="1.0", protocol=2)
    body = answer.json()
    assert body["worker_id"].startswith("gpu1-")
    assert (body["expires_in_seconds"], body["rotate_after_seconds"], body["protocol"]) == (3600, 2700, 2)
    reply = (await call(live, body["worker_token"])).json()
    expected = {"worker_id": body["worker_id"], "queues": ["default", "media"], "tenants": ["acme"], "drain": False}
    assert reply == expected
    (worker,) = (await live.client.get("/v1/workers")).json()["workers"]
    assert (worker["name"], worker["state"], worker["enrolled"], worker["labels"]) == ("gpu1", "active", True, ["gpu"])
    assert (worker["version"], worker["running"], worker["queues"]) == ("1.2", 3, ["media", "default"])
    assert worker["last_seen_at"] >= worker["created_at"]


async def test_an_enrolment_is_used_up(live: Live) -> None:
    once, thrice = await invited(live), await invited(live, uses=3)
    for token, uses in ((once, 1), (thrice, 3)):
        answers = await asyncio.gather(*(enroll(live, token) for _ in range(6)))
        assert sorted(answer.status_code for answer in answers) == [201] * uses + [401] * (6 - uses)
        refusal = next(answer for answer in answers if answer.status_code == 401)
        assert "used up" in problem(refusal, 401, "unauthorized")["detail"]


async def test_an_enrolment_that_is_over_is_refused(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    token = await invited(live, ttl_s=60)
    later(live, monkeypatch, 60_001)
    problem(await enroll(live, token), 401, "unauthorized")


async def test_tokens_stand_nowhere_in_the_store(live: Live) -> None:
    token = await invited(live, uses=2)
    worker = (await enroll(live, token)).json()
    new = (await call(live, worker["worker_token"], "/internal/worker/token")).json()
    stored_text = json.dumps([
        document.body for kind in (known.ENROLMENT, known.WORKER, known.SEEN)
        for document in await live.engine.store.documents(kind)
    ])  # fmt: skip
    for secret in (token, worker["worker_token"], new["worker_token"]):
        assert secret[20:52] not in stored_text
        assert secret not in (await live.client.get("/v1/workers")).text


def later(live: Live, monkeypatch: pytest.MonkeyPatch, ms: int) -> None:
    """Move the store's clock on."""
    real = live.engine.store.now

    async def now() -> int:
        return await real() + ms

    monkeypatch.setattr(live.engine.store, "now", now)


async def test_a_rotated_token_is_good_for_a_little_while(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await enrolled(live, queues=["q"])
    second = (await call(live, first["worker_token"], "/internal/worker/token")).json()
    assert second["worker_id"] == first["worker_id"]
    assert second["queues"] == ["q"]
    third = (await call(live, first["worker_token"], "/internal/worker/token")).json()  # its answer was lost
    tokens = [body["worker_token"] for body in (first, second, third)]
    assert len(set(tokens)) == 3
    for token in tokens:
        assert (await call(live, token)).status_code == 200


async def test_a_rotated_token_ends_though_its_successor_was_never_used(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await enrolled(live)
    second = (await call(live, first["worker_token"], "/internal/worker/token")).json()
    later(live, monkeypatch, known.OVERLAP_MS + 1)
    problem(await call(live, first["worker_token"]), 401, "unauthorized")
    assert (await call(live, second["worker_token"])).status_code == 200


async def test_a_token_ends_with_its_life(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = await enrolled(live, token_life_s=10)
    assert worker["rotate_after_seconds"] == 7.5
    later(live, monkeypatch, 10_001)
    problem(await call(live, worker["worker_token"]), 401, "unauthorized")
    problem(await call(live, worker["worker_token"], "/internal/worker/token"), 401, "unauthorized")
    (known_one,) = (await live.client.get("/v1/workers")).json()["workers"]
    assert known_one["state"] == "expired"


async def test_a_revoked_worker_is_told_so_at_its_next_call(live: Live) -> None:
    worker, other = await enrolled(live), await enrolled(live)
    answer = await live.client.delete(f"/v1/workers/{worker['worker_id']}")
    assert (answer.status_code, answer.json()["state"]) == (200, "revoked")
    for path in ("/probe", "/internal/worker/token"):
        details = problem(await call(live, worker["worker_token"], path), 401, "worker_revoked")
        assert (details["revoked"], details["drain"]) == (True, True)
    assert (await call(live, other["worker_token"])).status_code == 200
    again = await live.client.delete(f"/v1/workers/{worker['worker_id']}")
    assert again.json()["revoked_at"] == answer.json()["revoked_at"]


async def test_a_drained_worker_is_told_so_until_that_is_taken_back(live: Live) -> None:
    worker = await enrolled(live)
    path = f"/v1/workers/{worker['worker_id']}/drain"
    for query, state in ((None, "draining"), ({"drain": False}, "active"), ({"drain": True}, "draining")):
        assert (await live.client.post(path, json=query) if query else await live.client.post(path)).json()[
            "state"
        ] == state
        assert (await call(live, worker["worker_token"])).json()["drain"] is (state == "draining")


async def test_many_changes_of_one_worker_at_once_all_hold(live: Live) -> None:
    worker = await enrolled(live)
    rotations = (call(live, worker["worker_token"], "/internal/worker/token") for _ in range(3))
    drain = live.client.post(f"/v1/workers/{worker['worker_id']}/drain")
    answers = await asyncio.gather(drain, *rotations)
    assert [answer.status_code for answer in answers] == [200] * 4
    last = max(answers[1:], key=lambda answer: answer.json()["expires_at"]).json()["worker_token"]
    assert (await call(live, last)).json()["drain"] is True


async def test_a_worker_may_be_nothing_but_a_worker(small: Live) -> None:
    worker = await enrolled(small)
    async with small.bare() as client:
        client.headers.update(bearer(worker["worker_token"]))
        for method, path in (
            ("GET", "/v1/jobs"),
            ("GET", "/v1/workers"),
            ("POST", "/v1/workers/enrolments"),
            ("DELETE", f"/v1/workers/{worker['worker_id']}"),
            ("POST", f"/v1/workers/{worker['worker_id']}/drain"),
        ):
            problem(await client.request(method, path), 403, "forbidden")


async def test_only_admins_look_after_workers(small: Live) -> None:
    async with await small.key("a", scopes=["jobs:read", "jobs:write", "worker"]) as tenant:
        for method, path in (("GET", ""), ("POST", "/enrolments"), ("DELETE", "/x"), ("POST", "/x/drain")):
            problem(await tenant.request(method, f"/v1/workers{path}"), 403, "forbidden")
        body = (await tenant.post("/probe")).json()
        assert body == {"worker_id": None, "queues": None, "tenants": ["a"], "drain": False}
        problem(await tenant.post("/internal/worker/token"), 403, "forbidden")
    (worker,) = (await small.client.get("/v1/workers")).json()["workers"]
    assert (worker["worker_id"], worker["state"], worker["enrolled"]) == ("somebody", "unenrolled", False)
    for path in ("somebody", "gpu1-0123456789"):
        problem(await small.client.delete(f"/v1/workers/{path}"), 404, "not_found")


async def test_a_text_that_is_no_token_gets_nowhere(small: Live) -> None:
    worker, token = await enrolled(small), await invited(small)
    text = worker["worker_token"]
    forgeries = [text[:-1] + ("0" if text[-1] != "0" else "1"), "cs_worker_", "cs_worker_x", token]
    for wrong in forgeries:
        problem(await call(small, wrong), 401, "unauthorized")
    for wrong in ("x", text, token[:-1], ADMIN_LIKE):
        problem(await enroll(small, wrong), 401, "unauthorized")
    assert (await enroll(small, token)).status_code == 201


ADMIN_LIKE = "cs_enroll_" + "a" * 48


async def test_bad_words_are_told(small: Live) -> None:
    token = await invited(small)
    for fields in ({"worker_name": "a b"}, {"worker_name": "a~b"}, {"worker_name": ""}, {"labels": ["a b"]}):
        problem(await enroll(small, token, **fields), 422, "validation_failed")
    body: dict[str, Any]
    for body in ({"queues": []}, {"ttl_s": 0}, {"uses": 0}, {"tenants": [""]}, {"x": 1}, {"token_life_s": 1}):
        problem(await small.client.post("/v1/workers/enrolments", json=body), 422, "validation_failed")
    assert (await enroll(small, token)).status_code == 201


async def test_a_sign_of_life_is_written_once_in_a_while(small: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    async def version() -> int:
        (document,) = await small.engine.store.documents(known.SEEN)
        return document.version

    for _ in range(20):
        await seen(small.state, Holder("w"), running=1)
    assert await version() == 1
    monkeypatch.setattr(known, "SEEN_S", 0.0)
    await seen(small.state, Holder("w"), running=2)
    assert await version() == 2
    later(small, monkeypatch, known.FORGOTTEN_MS + 1)
    assert (await small.client.get("/v1/workers")).json()["workers"] == []


async def test_an_old_protocol_is_refused_before_the_enrolment_is_used_up(small: Live) -> None:
    token = await invited(small)
    for protocol in (0, versions.CURRENT + 1):
        details = problem(await enroll(small, token, protocol=protocol), 426, "upgrade_required")
        assert (details["min_version"], details["max_version"]) == (versions.OLDEST, versions.CURRENT)
    assert (await enroll(small, token)).json()["protocol"] == 1


def test_an_identity_names_its_worker_and_its_queues() -> None:
    one = WorkerIdentity("gpu1-a", frozenset({"a", "b"}))
    assert one.holder("gpu1-a") == Holder("gpu1-a", frozenset({"a", "b"}), is_enrolled=True)
    assert one.check_streams(["b", "a"]) == ("b", "a")
    for wrong in (lambda: one.holder("gpu1-b"), lambda: one.check_streams(["a", "c"])):
        with pytest.raises(Problem) as excinfo:
            wrong()
        assert excinfo.value.status == 403
    anybody = WorkerIdentity()
    assert (anybody.holder("x"), anybody.check_streams(["c"])) == (Holder("x"), ("c",))


async def test_an_invitation_that_was_taken_back_is_good_for_nobody(live: Live) -> None:
    body = (await live.client.post("/v1/workers/enrolments", json={"uses": 5})).json()
    token, path = body["enrolment_token"], f"/v1/workers/enrolments/{body['enrolment_id']}"
    before = (await enroll(live, token)).json()
    async with await live.key("acme") as tenant:
        problem(await tenant.delete(path), 403, "forbidden")
    assert (await live.client.delete(path)).status_code == 204
    problem(await enroll(live, token), 401, "unauthorized")
    problem(await live.client.delete(path), 404, "not_found")
    async with live.bare() as worker:
        answer = await worker.post("/probe", headers=bearer(before["worker_token"]))
    assert answer.status_code == 200, "who has enrolled before stays"
    page = await live.engine.store.audit_find(AuditQuery(action="enrolment.withdrawn"))
    assert [entry.target for entry in page.entries] == [body["enrolment_id"]], "it is written once"


async def test_an_invitation_is_taken_back_while_many_use_it(live: Live) -> None:
    body = (await live.client.post("/v1/workers/enrolments", json={"uses": 100})).json()
    path = f"/v1/workers/enrolments/{body['enrolment_id']}"
    *answers, gone = await asyncio.gather(
        *(enroll(live, body["enrolment_token"]) for _ in range(6)), live.client.delete(path)
    )
    assert gone.status_code == 204
    assert {answer.status_code for answer in answers} <= {201, 401}
    assert await live.engine.store.documents(known.ENROLMENT, body["enrolment_id"]) == [], "no use brings it back"
    problem(await enroll(live, body["enrolment_token"]), 401, "unauthorized")


async def test_invitations_that_can_be_used_are_listed_without_their_tokens(live: Live) -> None:
    path = "/v1/workers/enrolments"
    bounds = {"queues": ["media"], "tenants": ["acme"], "uses": 2, "token_life_s": 600}
    body = (await live.client.post(path, json=bounds)).json()
    used, taken = await invited(live), (await live.client.post(path)).json()
    old = (await live.client.post(path, json={"ttl_s": 1})).json()["enrolment_id"]
    (document,) = await live.engine.store.documents(known.ENROLMENT, old)
    expired_document = {**json.loads(document.body), "expires_at": 1}
    await live.engine.store.put_document(document._replace(body=json.dumps(expired_document)))
    assert (await live.client.delete(f"{path}/{taken['enrolment_id']}")).status_code == 204
    for token in (used, body["enrolment_token"]):
        assert (await enroll(live, token)).status_code == 201
    answer = await live.client.get(path)
    (entry,) = answer.json()["enrolments"]
    assert entry.pop("created_at") < entry.pop("expires_at") == body["expires_at"]
    assert entry == {
        "enrolment_id": body["enrolment_id"],
        "queues": ["media"],
        "tenants": ["acme"],
        "uses_left": 1,
        "token_life_s": 600,
    }
    (kept,) = await live.engine.store.documents(known.ENROLMENT)
    assert kept.id == body["enrolment_id"], "what nobody can use any more is forgotten"
    for secret in (body["enrolment_token"], json.loads(kept.body)["hash"]):
        assert secret not in answer.text
    async with await live.key("acme", scopes=("jobs:read", "jobs:write", "worker")) as tenant:
        problem(await tenant.get(path), 403, "forbidden")
