"""Sessions of the studio: a cookie's rights, its expiry, and protection against other sites."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping

import httpx2
import pytest

from callsheet.contracts.redis_gateway import routes, streams
from callsheet.http import sessions
from callsheet.http.keys import ApiKeys, Principal
from callsheet.http.sessions import COOKIE, KIND
from callsheet.store.audit import AuditQuery
from callsheet.studio import mount
from tests import stores
from tests.http.live import ADMIN, Live, frames, problem, serving

ROUTERS = [routes.router, streams.router, mount.router]
PROOF = {"X-Callsheet-Studio": "1", "Sec-Fetch-Site": "same-origin"}
JOB = {"task": "chat", "payload": {"prompt": "hi"}}


@pytest.fixture
async def live(url: str) -> AsyncIterator[Live]:
    async with serving(url, routers=ROUTERS) as live:
        await stores.empty({url: live.engine.store})
        yield live


@pytest.fixture
async def small() -> AsyncIterator[Live]:
    async with serving(stores.fresh_url("sqlite"), routers=ROUTERS) as live:
        yield live


@contextlib.asynccontextmanager
async def signed_in(live: Live, key: str) -> AsyncIterator[httpx2.AsyncClient]:
    """A browser-like client with a session; it adds no proof header."""
    async with live.bare() as client:
        answer = await client.post("/studio/session", json={"key": key}, headers=PROOF)
        assert answer.status_code == 201, answer.text
        yield client


async def test_a_key_becomes_a_cookie_that_is_not_the_key(live: Live) -> None:
    key = await live.text("acme", scopes=["jobs:read"])
    async with live.bare() as client:
        answer = await client.post("/studio/session", json={"key": key}, headers=PROOF)
        cookie = answer.headers["set-cookie"].lower()
        assert all(part in cookie for part in ("httponly", "samesite=strict", "path=/", "max-age="))
        assert "secure" not in cookie  # this is plain HTTP on this machine
        assert key not in str(answer.headers)
        me = (await client.get("/studio/session")).json()
        assert (me["role"], me["requester_id"], me["teams"], me["key_name"]) == ("viewer", "acme", ["acme"], "test")
        assert (await client.get("/v1/jobs")).status_code == 200
    documents = [document.body for document in await live.engine.store.documents(KIND)]
    assert len(documents) == 1
    assert key not in documents[0]
    assert client.cookies[COOKIE] not in documents[0]


@pytest.mark.parametrize(
    ("scopes", "role"), [(["jobs:read"], "viewer"), (["jobs:read", "jobs:write"], "operator"), (["admin"], "admin")]
)
async def test_a_role_is_what_the_key_may_do(small: Live, scopes: list[str], role: str) -> None:
    async with signed_in(small, await small.text("a", scopes=scopes)) as client:
        assert (await client.get("/studio/session")).json()["role"] == role
        response = await client.post("/v1/jobs", json=JOB, headers=PROOF)
        assert response.status_code == (403 if role == "viewer" else 202)


async def test_over_tls_the_cookie_is_for_tls_alone(small: Live) -> None:
    async with small.bare() as client:
        headers = {**PROOF, "X-Forwarded-Proto": "https"}  # as a proxy on this machine tells
        answer = await client.post("/studio/session", json={"key": ADMIN}, headers=headers)
        assert "secure" in answer.headers["set-cookie"].lower()


async def test_a_key_that_cannot_read_jobs_does_not_sign_in(small: Live) -> None:
    async with small.bare() as client:
        worker = await small.text("", scopes=["worker"])
        problem(await client.post("/studio/session", json={"key": worker}, headers=PROOF), 403, "forbidden")
        for wrong in ("wrong", worker[:-1] + ("y" if worker.endswith("x") else "x"), "cs_worker_x"):
            answer = await client.post("/studio/session", json={"key": wrong}, headers=PROOF)
            problem(answer, 401, "unauthorized")
            assert wrong not in answer.text
        for body in ({}, {"key": ""}, {"key": "x" * 201}, {"key": 7}, {"key": "x", "more": 1}):
            answer = await client.post("/studio/session", json=body, headers=PROOF)
            problem(answer, 422, "validation_failed")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-Callsheet-Studio": "1"},
        {"Sec-Fetch-Site": "same-origin"},
        {"X-Callsheet-Studio": "1", "Sec-Fetch-Site": "cross-site"},
        {"X-Callsheet-Studio": "1", "Sec-Fetch-Site": "same-site"},
        {"X-Callsheet-Studio": "1", "Origin": "http://evil.example"},
        {"X-Callsheet-Studio": "1", "Origin": "null"},
        {"X-Callsheet-Studio": "0", "Sec-Fetch-Site": "same-origin"},
    ],
)
async def test_another_site_can_do_nothing_with_the_cookie(small: Live, headers: Mapping[str, str]) -> None:
    async with signed_in(small, ADMIN) as client:
        job_id = await small.job()
        problem(await client.post("/v1/jobs", json=JOB, headers=headers), 403, "forbidden")
        problem(await client.post(f"/v1/jobs/{job_id}/cancel", headers=headers), 403, "forbidden")
        problem(await client.delete("/studio/session", headers=headers), 403, "forbidden")
        problem(await client.post("/studio/session", json={"key": ADMIN}, headers=headers), 403, "forbidden")
        assert (await small.client.get(f"/v1/jobs/{job_id}")).json()["status"] == "queued"


async def test_the_origin_proves_it_where_the_browser_says_no_more(small: Live) -> None:
    async with signed_in(small, ADMIN) as client:
        headers = {"X-Callsheet-Studio": "1", "Origin": small.url}
        assert (await client.post("/v1/jobs", json=JOB, headers=headers)).status_code == 202


async def test_a_revoked_key_ends_its_session_at_once(live: Live) -> None:
    text, key = await ApiKeys(live.engine.store).create("x", requester_id="a")
    async with signed_in(live, text) as client:
        assert (await client.get("/v1/jobs")).status_code == 200
        await ApiKeys(live.engine.store).revoke(key.key_id)  # as another process does
        problem(await client.get("/v1/jobs"), 401, "unauthorized")
        problem(await client.get("/studio/session"), 401, "unauthorized")


async def test_an_expired_key_and_an_old_session_are_over(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    text, key = await ApiKeys(live.engine.store).create("x", requester_id="a", ttl_s=3600)
    (document,) = await live.engine.store.documents("api_key", key.key_id)
    async with signed_in(live, text) as client:
        over = document.body.replace(str(key.expires_at), str(await live.engine.store.now() - 1))
        await live.engine.store.put_document(document._replace(body=over))
        problem(await client.get("/v1/jobs"), 401, "unauthorized")
    monkeypatch.setattr(sessions, "LIFE_S", 0)
    async with signed_in(live, ADMIN) as client:
        problem(await client.get("/v1/jobs"), 401, "unauthorized")


async def test_signing_out_ends_it_for_whoever_has_the_cookie(live: Live) -> None:
    async with signed_in(live, ADMIN) as client, live.bare() as thief:
        thief.cookies.set(COOKIE, client.cookies[COOKIE], domain="127.0.0.1")
        assert (await thief.get("/v1/jobs")).status_code == 200
        assert (await client.delete("/studio/session", headers=PROOF)).status_code == 204
        problem(await thief.get("/v1/jobs"), 401, "unauthorized")
        problem(await client.get("/v1/jobs"), 401, "unauthorized")


async def test_a_made_up_cookie_is_nobodys(small: Live) -> None:
    async with small.bare() as client:
        for value in ("x", "", "a" * 4000):
            client.cookies.set(COOKIE, value, domain="127.0.0.1")
            problem(await client.get("/v1/jobs"), 401, "unauthorized")


async def test_a_session_sees_its_own_tenant_alone(live: Live) -> None:
    await live.job(await live.key("other"))
    async with signed_in(live, await live.text("mine")) as client:
        body = (await client.post("/v1/jobs", json=JOB, headers=PROOF)).json()["job_id"]
        assert [job["job_id"] for job in (await client.get("/v1/jobs")).json()["jobs"]] == [body]


async def test_two_processes_share_their_sessions(url: str) -> None:
    async with (
        serving(url, routers=ROUTERS) as one,
        serving(url, routers=ROUTERS) as two,
        signed_in(one, await one.text("a")) as client,
    ):
        assert (await client.get(f"{two.url}/v1/jobs")).status_code == 200
        await client.delete("/studio/session", headers=PROOF)
        problem(await client.get(f"{two.url}/v1/jobs"), 401, "unauthorized")


async def test_another_key_of_the_environment_ends_sessions_of_the_one_before(url: str) -> None:
    async with serving(url, routers=ROUTERS) as before, signed_in(before, ADMIN) as client:
        value = client.cookies[COOKIE]
    async with serving(url, routers=ROUTERS, api_key="another-key-of-the-tests") as after, after.bare() as client:
        client.cookies.set(COOKIE, value, domain="127.0.0.1")
        problem(await client.get("/v1/jobs"), 401, "unauthorized")


async def test_a_stream_opens_with_the_cookie_and_no_ticket(small: Live) -> None:
    async with signed_in(small, ADMIN) as client:
        job_id = await small.job()
        async with client.stream("GET", f"/v1/events?jobs={job_id}") as answer:
            assert answer.status_code == 200
            assert (await anext(frames(answer))).event == "hello"


async def test_without_auth_everybody_is_an_admin_and_nobody_signs_in() -> None:
    async with serving(stores.fresh_url("sqlite"), routers=ROUTERS, auth=False) as live, live.bare() as client:
        me = (await client.get("/studio/session")).json()
        assert (me["auth"], me["role"]) == (False, "admin")


async def test_a_session_of_a_clock_that_was_ahead_is_over(small: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    key, store = await small.text("acme", scopes=["jobs:read"]), small.engine.store
    ahead = await store.now() + 6 * 3_600_000

    async def wrong() -> int:
        return ahead

    with monkeypatch.context() as clock:
        clock.setattr(store, "now", wrong)
        async with signed_in(small, key) as client:
            assert (await client.get("/v1/jobs")).status_code == 200
            clock.undo()
            problem(await client.get("/v1/jobs"), 401, "unauthorized")
            assert not await sessions.Sessions(store, ApiKeys(store)).holds(
                Principal("k", "acme", frozenset(), session_id=(await store.documents(KIND))[0].id)
            )


async def test_sessions_that_are_over_are_swept(small: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "SWEEP", 1.0)
    monkeypatch.setattr(sessions, "LIFE_S", 0)
    for _ in range(3):
        async with signed_in(small, ADMIN):
            assert len(await small.engine.store.documents(KIND)) == 1


async def test_a_key_has_so_many_sessions_and_the_oldest_ends_for_one_more(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MOST_OF_KEY", 3)
    monkeypatch.setattr(sessions, "MINUTE_MS", 0)
    key, ended_jobs = await live.text("acme"), list[str]()
    live.state.sessions.on_end.append(ended_jobs.append)
    async with signed_in(live, await live.text("other")) as other, signed_in(live, key) as first:
        for _ in range(2):
            async with signed_in(live, key) as client:
                assert (await client.get("/v1/jobs")).status_code == 200
        assert (await first.get("/v1/jobs")).status_code == 200
        assert not ended_jobs
        async with signed_in(live, key):
            problem(await first.get("/v1/jobs"), 401, "unauthorized")
        assert len(ended_jobs) == 1, "its streams end too"
        assert (await other.get("/v1/jobs")).status_code == 200
    assert len(await live.engine.store.documents(KIND)) == 4


async def test_who_signs_out_makes_room_for_another(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MOST_OF_KEY", 2)
    monkeypatch.setattr(sessions, "MINUTE_MS", 0)
    key = await live.text("acme")
    async with signed_in(live, key) as first:
        for _ in range(3):
            async with signed_in(live, key) as client:
                assert (await client.delete("/studio/session", headers=PROOF)).status_code == 204
        assert (await first.get("/v1/jobs")).status_code == 200
    assert len(await live.engine.store.documents(KIND)) == 1


async def test_many_who_sign_in_at_once_are_all_counted(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MOST_OF_KEY", 4)
    monkeypatch.setattr(sessions, "MINUTE_MS", 0)
    key = await live.text("acme")
    async with contextlib.AsyncExitStack() as stack:
        browsers = [await stack.enter_async_context(live.bare()) for _ in range(8)]
        signing = [browser.post("/studio/session", json={"key": key}, headers=PROOF) for browser in browsers]
        assert {answer.status_code for answer in await asyncio.gather(*signing)} == {201}
    begun_jobs = {document.id for document in await live.engine.store.documents(KIND)}
    (entry,) = await live.engine.store.documents(sessions.OF_KEY)
    assert begun_jobs == json.loads(entry.body).keys()
    assert len(begun_jobs) == 4


async def test_a_key_signs_in_so_often_in_a_minute(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MOST_OF_KEY", 3)
    monkeypatch.setattr(sessions, "MINUTE_MS", 3_600_000)  # no machine is so slow that it is over
    key = await live.text("acme")
    async with live.bare() as client:
        for status in (201, 201, 201, 429, 429):
            client.cookies.clear()
            answer = await client.post("/studio/session", json={"key": key}, headers=PROOF)
            assert answer.status_code == status
        problem(answer, 429, "too_many_requests")
        page = await live.engine.store.audit_find(AuditQuery(action="session.signed_in"))
        assert len(page.entries) == len(await live.engine.store.documents(KIND)) == 3
        for _ in range(5):  # an operator is let in
            async with signed_in(live, ADMIN):
                pass


async def test_lists_of_sessions_that_are_over_go(small: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "SWEEP", 1.0)
    async with signed_in(small, await small.text("acme")):
        pass
    monkeypatch.setattr(sessions, "LIFE_S", 0)
    text, last = await ApiKeys(small.engine.store).create("x", requester_id="other")
    async with signed_in(small, text):
        pass
    (entry,) = await small.engine.store.documents(sessions.OF_KEY)
    assert entry.id == last.key_id
