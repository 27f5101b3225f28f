"""The audit log over HTTP: recorded actions, their readers, and values that never appear."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.requests import Request

from callsheet.client import Client
from callsheet.engine import Housekeeping
from callsheet.engine.housekeeping import DAY_MS, Chores
from callsheet.http.audit import MOST_WINDOWS
from callsheet.http.keys import new_key
from callsheet.http.problems import Problem
from callsheet.kernel.audit import ACTIONS, MASK, new_entry, plain
from callsheet.kernel.errors import InvalidInput, StoreUnavailable
from callsheet.store.audit import AuditQuery
from callsheet.store.protocol import ClaimRequest
from tests import stores
from tests.http.live import ADMIN, Live, problem
from tests.security.site_quotas import JOB, everything, store_url

PROOF = {"X-Callsheet-Studio": "1", "Sec-Fetch-Site": "same-origin"}


@pytest.fixture(params=stores.THREE)
def url(request: pytest.FixtureRequest) -> str:
    return store_url(request.param)


@pytest.fixture
async def live(url: str) -> AsyncIterator[Live]:
    async with everything(url) as live:
        yield live


async def acts(client: httpx2.AsyncClient, **filters: Any) -> list[dict[str, Any]]:
    answer = await client.get("/v1/audit", params=filters)
    assert answer.status_code == 200, answer.text
    entries: list[dict[str, Any]] = answer.json()["entries"]
    return entries


async def actions(client: httpx2.AsyncClient, **filters: Any) -> list[str]:
    return [entry["action"] for entry in await acts(client, **filters)]


async def test_keys_that_are_made_used_and_revoked_are_in_it_before_the_answer(live: Live) -> None:
    body = (await live.client.post("/v1/keys", json={"name": "ci", "requester_id": "acme"})).json()
    (entry,) = (await live.engine.store.audit_find(AuditQuery(action="key.created"))).entries
    assert (entry.target, entry.requester_id, entry.actor) == (body["key_id"], "acme", "bootstrap")
    assert json.loads(entry.details) == {"name": "ci", "scopes": "jobs:read jobs:write", "operator": True}
    assert entry.address == "127.0.0.1"
    async with live.bare() as acme:
        acme.headers["Authorization"] = f"Bearer {body['key']}"
        for _ in range(3):
            await acme.get("/v1/jobs")
        assert await actions(acme) == ["key.first_used", "key.created"]
        assert (await live.client.delete(f"/v1/keys/{body['key_id']}")).status_code == 204
        assert await actions(live.client, tenant="acme") == ["key.revoked", "key.first_used", "key.created"]


async def test_a_tenant_sees_its_own_entries_and_no_operator_behind_them(live: Live) -> None:
    async with await live.key("acme") as acme, await live.key("other") as other:
        await live.client.put("/v1/quotas/acme", json={"queued": 7})
        await live.client.put("/v1/quotas/other", json={"queued": 8})
        (mine,) = await acts(acme, action="quota.changed")
        assert (mine["tenant"], mine["target"], mine["actor"], mine["address"]) == ("acme", "acme", "operator", "")
        assert mine["request_id"] == ""
        assert mine["details"]["queued"] == 7
        assert {entry["tenant"] for entry in await acts(acme)} == {"acme"}
        assert await acts(acme, actor="bootstrap") == []
        problem(await other.get("/v1/audit", params={"tenant": "acme"}), 403, "forbidden")
        both = await acts(live.client, action="quota.changed")
        assert [(entry["tenant"], entry["actor"]) for entry in both] == [("other", "bootstrap"), ("acme", "bootstrap")]
    async with await live.key("acme", scopes=["jobs:read"]) as reader, await live.key("") as nobody:
        problem(await reader.get("/v1/audit"), 403, "forbidden")
        problem(await nobody.get("/v1/audit"), 403, "forbidden")


async def test_refusals_are_noted_once_and_then_counted(live: Live) -> None:
    async with live.bare() as stranger, await live.key("acme", scopes=["jobs:read"]) as acme:
        for n in range(30):
            assert (await stranger.get("/v1/jobs", headers={"X-API-Key": f"guess {n}"})).status_code == 401
            problem(await acme.post("/v1/jobs", json=JOB), 403, "forbidden")
        await live.state.audit.flush(close=True)
        refusal = await acts(live.client, action="key.refused")
        assert [(e["outcome"], e["address"], e["details"].get("more")) for e in refusal] == [
            ("refused", "127.0.0.1", 29),
            ("refused", "127.0.0.1", None),
        ]
        denied = await acts(live.client, action="scope.denied")
        assert [(e["tenant"], e["target"], e["details"].get("more")) for e in denied] == [
            ("acme", "POST /v1/jobs", 29),
            ("acme", "POST /v1/jobs", None),
        ]


async def test_a_flood_from_many_addresses_writes_a_bounded_number(live: Live) -> None:
    for n in range(1_000):
        scope = {"type": "http", "method": "GET", "headers": [], "client": (f"10.0.{n // 250}.{n % 250}", 1)}
        live.state.audit.note_refusal(Request(scope), Problem("unauthorized", ""))
    await live.state.audit.flush(close=True)
    entries = (await live.engine.store.audit_find(AuditQuery(action="key.refused", limit=2_000))).entries
    assert len(entries) == MOST_WINDOWS + 2
    assert max(json.loads(entry.details).get("more", 0) for entry in entries) == 1_000 - MOST_WINDOWS - 1


async def test_sign_ins_and_outs_and_those_that_fail(live: Live) -> None:
    text = await live.text("acme")
    async with live.bare() as browser:
        assert (await browser.get("/studio/session")).status_code == 401  # no act: a browser asks who is signed in
        assert (await browser.post("/studio/session", json={"key": "wrong"}, headers=PROOF)).status_code == 401
        assert (await browser.post("/studio/session", json={"key": text}, headers=PROOF)).status_code == 201
        assert (await browser.delete("/studio/session", headers=PROOF)).status_code == 204
        assert (await browser.delete("/studio/session", headers=PROOF)).status_code == 204
    entries = await acts(live.client, action="session.")
    assert sorted((entry["action"], entry["tenant"]) for entry in entries) == [
        ("session.refused", ""),
        ("session.signed_in", "acme"),
        ("session.signed_out", "acme"),
    ]


async def test_workers_that_are_invited_enrolled_drained_and_revoked(live: Live) -> None:
    enrolment = (await live.client.post("/v1/workers/enrolments", json={"queues": ["q"]})).json()
    body = {"enrolment_token": enrolment["enrolment_token"], "worker_name": "w"}
    async with live.bare() as nobody:
        worker = (await nobody.post("/internal/worker/enroll", json=body)).json()["worker_id"]
        assert (await nobody.post("/internal/worker/enroll", json=body)).status_code == 401
    await live.client.post(f"/v1/workers/{worker}/drain")
    await live.client.post(f"/v1/workers/{worker}/drain", json={"drain": False})
    await live.client.delete(f"/v1/workers/{worker}")
    await live.state.audit.flush(close=True)
    entries = await acts(live.client)
    assert {entry["action"] for entry in entries} >= {
        "enrolment.created", "worker.enrolled", "worker.refused", "worker.drained", "worker.resumed", "worker.revoked",
    }  # fmt: skip
    assert enrolment["enrolment_token"] not in json.dumps(entries)


async def test_replays_and_purges_of_dead_letters(live: Live) -> None:
    async with await live.key("acme") as acme:
        first = await live.running(acme)
        await live.fail(first)
        assert (await acme.post(f"/v1/dead-letters/{first.job_id}/replay")).status_code == 202
        (job,) = await live.engine.claim(ClaimRequest("w", lease_ms=600_000))
        await live.fail(job)
        assert (await acme.delete(f"/v1/dead-letters/{job.job_id}")).status_code == 204
        assert (await acme.post("/v1/dead-letters/purge", json={"all": True})).status_code == 202
        assert (await acme.post("/v1/dead-letters/replay", json={})).status_code == 202
        entries = await acts(acme, action="dead_letters.")
        assert [entry["action"].partition(".")[2] for entry in entries] == ["replayed", "purged", "purged", "replayed"]
        assert entries[3]["target"] == first.job_id


async def test_the_python_client_reads_quotas_and_the_log(live: Live) -> None:
    text = await live.text("acme")
    for n in range(3):
        await live.client.put("/v1/quotas/acme", json={"queued": n + 1})
    async with Client(live.url, text) as client:
        assert (await client.quotas())["limits"]["queued"] == 3
        entries = [entry["details"]["queued"] async for entry in client.audit(action="quota.")]
        assert entries == [3, 2, 1]
        assert len([entry async for entry in client.audit(limit=1)]) == 1


async def test_pages_and_times(live: Live) -> None:
    for n in range(5):
        await live.client.put("/v1/quotas/acme", json={"queued": n})
    first = (await live.client.get("/v1/audit", params={"limit": 2, "action": "quota.changed"})).json()
    cursor = first["next"]
    rest = await acts(live.client, limit=9, cursor=cursor, action="quota.")
    assert [entry["details"]["queued"] for entry in [*first["entries"], *rest]] == [4, 3, 2, 1, 0]
    at = rest[0]["at"]
    assert all(entry["at"] >= at for entry in await acts(live.client, since=at))
    assert all(entry["at"] < at for entry in await acts(live.client, until=at))


@pytest.mark.parametrize(
    "bad", [{"action": "nonsense"}, {"cursor": "x"}, {"cursor": "1-"}, {"since": -1}, {"limit": 0}, {"limit": 501}]
)
async def test_a_query_that_cannot_be_right_is_refused(live: Live, bad: dict[str, Any]) -> None:
    assert (await live.client.get("/v1/audit", params=bad)).status_code == 422


async def test_no_secret_gets_into_it(live: Live) -> None:
    secrets = [new_key(), new_key("cs_worker_"), "whsec_c2VjcmV0c2VjcmV0c2VjcmV0", ADMIN]
    for text in secrets[:3]:
        response = await live.client.post("/v1/keys", json={"name": f"for {text}", "requester_id": "acme"})
        secrets.append(response.json()["key"])
        await live.client.get("/v1/jobs", headers={"X-Request-ID": text[:64]})
        await live.client.delete(f"/v1/keys/{text[:64]}")
        async with live.bare() as stranger:
            await stranger.get(f"/v1/{text}", headers={"X-API-Key": text})
            await stranger.get("/v1/jobs", headers={"X-API-Key": text})
    await live.state.audit.flush(close=True)
    everything_in_it = json.dumps(await acts(live.client, limit=500))
    assert [text for text in secrets if text in everything_in_it] == []


@pytest.mark.parametrize(
    "text",
    [
        new_key(),
        "Bearer abcdefghijkl",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdef",
        "AKIAIOSFODNN7EXAMPLE",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "-----BEGIN PRIVATE KEY-----",
    ],
    ids=["a key", "a bearer", "a JWT", "an access key", "a secret key", "a private key"],
)
def test_what_looks_like_a_secret_is_hidden(text: str) -> None:
    entry = new_entry("key.created", {"name": f"x {text}", text: 1, "list": [text]}, target=text, actor=text)
    assert text not in str(entry)
    assert MASK in entry.target


def test_plain_words_ids_and_addresses_stay_as_they_are() -> None:
    for text in ("0199f0c2-7f7a-7d51-b3cd-0d52b5f0f5b1", "7Tq2bXc9Lm", "Anna's laptop", "2001:db8::1", "POST /v1/jobs"):
        assert plain(text) == text
    assert plain("a\nb\x00" + "c" * 1_000) == "a b " + "c" * 251
    with pytest.raises(InvalidInput):
        new_entry("key.stolen")
    assert all(action == action.lower() and "." in action for action in ACTIONS)


def test_the_guide_lists_every_action() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "quotas-and-audit.md").read_text("utf-8")
    assert [action for action, text in ACTIONS.items() if f"| `{action}` | {text} |" not in guide] == []


async def test_only_servers_prune_it_and_only_what_is_old(live: Live) -> None:
    now = await live.engine.store.now()
    await live.engine.store.audit_append([new_entry("key.created", target="old")], now=now - 5 * DAY_MS)
    await live.engine.store.audit_append([new_entry("key.created", target="new")])
    await Housekeeping(live.engine).sweep()
    assert [e["target"] for e in await acts(live.client, action="key.created")] == ["new", "old"]
    await Housekeeping(live.engine, Chores(audit_ms=4 * DAY_MS)).sweep()
    assert [e["target"] for e in await acts(live.client, action="key.created")] == ["new"]


async def test_an_act_that_cannot_be_written_is_not_answered(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    async def gone(*_: Any, **__: Any) -> list[str]:
        raise StoreUnavailable("gone")

    monkeypatch.setattr(live.engine.store, "audit_append", gone)
    problem(await live.client.put("/v1/quotas/acme", json={"queued": 1}), 503, "store_unavailable")
