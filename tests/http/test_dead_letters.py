"""`/v1/dead-letters` on a real server, on each store."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx2
import pytest

from callsheet.engine import Engine, operations
from callsheet.engine.dead_letters import Wanted
from callsheet.engine.operations import Operations
from callsheet.engine.quotas import Quotas
from callsheet.kernel import commands
from callsheet.kernel.job import RESUMED_FROM, Claim, Credentials, Envelope
from callsheet.store.protocol import ClaimRequest, Settled
from tests import stores
from tests.cli.programs import Program, eventually
from tests.http.dead import ROUTERS, dead, ended, statuses
from tests.http.live import ADMIN, Live, problem, serving
from tests.server_process import free_port

UNKNOWN = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
async def small() -> AsyncIterator[Live]:
    """A server on SQLite, for tests independent of the store."""
    async with serving(stores.fresh_url("sqlite"), routers=ROUTERS, housekeeping=True) as live:
        yield live


@pytest.fixture
async def live(url: str) -> AsyncIterator[Live]:
    """A server with housekeeping, per store."""
    async with serving(url, routers=ROUTERS, housekeeping=True) as live:
        await stores.empty({url: live.engine.store})
        yield live


async def ids(client: httpx2.AsyncClient, query: str = "") -> list[str]:
    answer = await client.get(f"/v1/dead-letters{query}")
    assert answer.status_code == 200, answer.text
    return [letter["job_id"] for letter in answer.json()["dead_letters"]]


async def test_filters_choose_among_dead_letters(live: Live) -> None:
    first = await dead(live, kind="a", queue="x", contract="control_plane")
    second = await dead(live, "other", kind="b", queue="y")
    failed_id = await dead(live, "fatal", kind="a", queue="x", retryable=False)
    await live.job()
    middle = (await live.engine.get(second)).ended_at or 0
    for query, expected in {
        "": [second, first],
        "?status=failed": [failed_id],
        "?status=both": [failed_id, second, first],
        "?task=a": [first],
        "?queue=y": [second],
        "?contract=control_plane": [first],
        "?error_code=other": [second],
        "?error_code=nothing": [],
        f"?ended_from={middle}": [second],
        f"?ended_to={middle}": [first],
        "?created_from=2100-01-01T00:00:00Z": [],
        "?created_to=2100-01-01T00:00:00%2B02:00&ended_from=1": [second, first],
    }.items():
        assert await ids(live.client, query) == expected, query


async def test_pages_go_through_all_once_while_some_leave(live: Live) -> None:
    job_ids = [await dead(live, "odd" if n % 2 else "even") for n in range(7)]
    results, cursor = [], ""
    while cursor is not None:
        page = (
            await live.client.get(f"/v1/dead-letters?limit=2&error_code=even{cursor and '&cursor='}{cursor}")
        ).json()
        results += [letter["job_id"] for letter in page["dead_letters"]]
        for letter in page["dead_letters"]:
            await live.client.delete(f"/v1/dead-letters/{letter['job_id']}")
        cursor = page["next"]
    assert results == job_ids[::2][::-1]


async def test_a_wrong_filter_is_told(small: Live) -> None:
    for query in (
        "status=queued",
        "limit=0",
        "cursor=x",
        "created_from=yesterday",
        "ended_to=2030-01-01T00:00:00",
        "x=1",
    ):
        problem(await small.client.get(f"/v1/dead-letters?{query}"), 422, "validation_failed")
    body: object
    for body in ({"rate": 0}, {"rate": "1e999"}, {"limit": 0}, {"x": 1}, {"status": "queued"}, {"ended_to": -1}, []):
        problem(await small.client.post("/v1/dead-letters/replay", json=body), 422, "validation_failed")


async def test_a_dead_letter_tells_all_but_the_hash_of_a_token(live: Live) -> None:
    job_id = await dead(live, max_attempts=2, requester_id="a")
    answer = await live.client.get(f"/v1/dead-letters/{job_id}")
    letter = answer.json()
    assert (letter["payload"], letter["status"], letter["attempts"]) == ({"n": 1}, "dead_letter", 2)
    assert letter["error"] == {"code": "boom", "message": "it said boom"}
    assert letter["error_class"] == "retryable"
    assert "2 attempts failed" in letter["advice"]
    assert [a["outcome"] for a in letter["history"]] == ["retried", "dead_lettered"]
    assert [a["worker_id"] for a in letter["history"]] == ["w1", "w1"]
    assert all(a["started_at"] <= a["ended_at"] for a in letter["history"])
    assert "5ec2e7" not in answer.text


async def test_the_class_of_an_error_comes_with_advice(small: Live) -> None:
    words = {
        "throttled": await dead(small, "429"),
        "retryable": await dead(small, "500"),
        "fatal": await dead(small, "invalid_payload", retryable=False),
        "credentials": await dead(small, "401", contract="euterpe", retryable=True),
    }
    for error_class, job_id in words.items():
        letter = (await small.client.get(f"/v1/dead-letters/{job_id}")).json()
        assert letter["error_class"] == error_class
        assert letter["advice"]


async def test_a_replay_brings_a_job_back_once(live: Live) -> None:
    job_id = await dead(live)
    answer = await live.client.post(f"/v1/dead-letters/{job_id}/replay")
    expected = {"job_id": job_id, "replay_job_id": job_id, "copied": False, "status": "queued"}
    assert (answer.status_code, answer.json()) == (202, expected)
    problem(await live.client.post(f"/v1/dead-letters/{job_id}/replay"), 409, "illegal_move")
    assert (await live.engine.get(job_id)).event_seq == 4  # queued, running, error, requeued
    problem(await live.client.get(f"/v1/dead-letters/{job_id}"), 404, "job_not_found")
    (job,) = await live.engine.claim(ClaimRequest("w", ("q",)))
    assert await live.engine.settle([commands.succeed(job)]) == [Settled.APPLIED]
    problem(await live.client.post(f"/v1/dead-letters/{job_id}/replay"), 409, "illegal_move")
    assert await ids(live.client) == []


async def test_where_an_end_is_final_one_copy_runs(live: Live) -> None:
    job_id = await dead(live, contract="redis_gateway", requester_id="a", priority=3)
    first = (await live.client.post(f"/v1/dead-letters/{job_id}/replay")).json()
    assert first["copied"]
    assert (await live.client.post(f"/v1/dead-letters/{job_id}/replay")).json() == first
    copy = await live.engine.get(first["replay_job_id"])
    dead_one = await live.engine.get(job_id)
    for name in ("kind", "payload", "queue", "priority", "requester_id", "contract", "max_attempts"):
        assert getattr(copy, name) == getattr(dead_one, name)
    assert (copy.correlation_id, dead_one.status.value) == (f"replay:{job_id}", "dead_letter")
    assert (await live.client.get(f"/v1/dead-letters/{job_id}")).json()["replay_job_id"] == copy.job_id


async def test_a_dead_transcoding_job_runs_again_as_a_copy_that_names_it(live: Live) -> None:
    job_id = await dead(live, "503", contract="euterpe", requester_id="a")
    answer = await live.client.post(f"/v1/dead-letters/{job_id}/replay")
    assert (answer.status_code, answer.json()["copied"]) == (202, True)
    copy = await live.engine.get(answer.json()["replay_job_id"])
    assert (copy.contract, copy.requester_id, copy.status.value) == ("euterpe", "a", "queued")
    assert (await live.engine.store.checkpoints(copy.job_id))[RESUMED_FROM] == json.dumps(job_id)
    assert await statuses(live, job_id) == ["dead_letter"]


async def test_a_copy_has_the_credentials_of_its_dead_letter(live: Live) -> None:
    envelope = Envelope(1, "YQ==", "YQ==", "kek", 1)
    job_id = await dead(live, "503", contract="euterpe", requester_id="a", credentials=envelope)
    assert (await live.client.get(f"/v1/dead-letters/{job_id}")).json()["can_replay"] is True
    answer = await live.client.post(f"/v1/dead-letters/{job_id}/replay")
    assert (answer.status_code, answer.json()["copied"]) == (202, True), answer.text
    assert (await live.client.delete(f"/v1/dead-letters/{job_id}")).status_code == 204
    copy_id = answer.json()["replay_job_id"]
    assert await live.engine.store.credentials([copy_id]) == [Credentials(copy_id, "a", envelope)]


async def test_what_may_not_come_back_is_refused(live: Live) -> None:
    spent_id = await dead(live, "500", contract="euterpe", concurrency_key="j", concurrency_limit=5)
    keyed_id = await dead(live, contract="redis_gateway", concurrency_key="k", concurrency_limit=5)
    for job_id in (spent_id, keyed_id):
        assert (await live.client.get(f"/v1/dead-letters/{job_id}")).json()["can_replay"] is False
        problem(await live.client.post(f"/v1/dead-letters/{job_id}/replay"), 409, "illegal_move")
    other = await dead(live, "503", contract="euterpe")
    assert (await live.client.get(f"/v1/dead-letters/{other}")).json()["can_replay"] is True
    await live.client.delete(f"/v1/dead-letters/{other}")
    body = await ended(live.client, await live.client.post("/v1/dead-letters/replay"))
    assert (body["done"], body["refused"], body["status"]) == (0, 2, "done")
    assert "cannot" in body["why"]
    assert await statuses(live, spent_id, keyed_id) == ["dead_letter"] * 2


async def test_a_dead_letter_is_deleted_and_nothing_else(live: Live) -> None:
    job_id, waiting = await dead(live), await live.job()
    assert (await live.client.delete(f"/v1/dead-letters/{job_id}")).status_code == 204
    for absent_id in (job_id, waiting, UNKNOWN, "nonsense"):
        problem(await live.client.delete(f"/v1/dead-letters/{absent_id}"), 404, "job_not_found")
    assert await statuses(live, job_id, waiting) == ["gone", "queued"]


async def test_many_come_back_by_filter_and_are_counted(live: Live) -> None:
    wanted_ids = [await dead(live, "oom") for _ in range(5)]
    wanted_ids.append(await dead(live, "oom", contract="redis_gateway"))
    other = await dead(live, "boom")
    body = await ended(live.client, await live.client.post("/v1/dead-letters/replay", json={"error_code": "oom"}))
    assert (body["status"], body["done"], body["refused"]) == ("done", 6, 0)
    assert body["filter"] == {"error_code": "oom", "status": "dead_letter"}
    assert await statuses(live, *wanted_ids, other) == ["queued"] * 5 + ["dead_letter"] * 2
    assert body["created_at"] <= body["updated_at"] == body["ended_at"]


async def test_a_limit_takes_the_newest_and_a_rate_is_kept(live: Live) -> None:
    job_ids = [await dead(live) for _ in range(8)]
    start = time.monotonic()
    body = await ended(live.client, await live.client.post("/v1/dead-letters/replay", json={"limit": 6, "rate": 10}))
    assert body["done"] == 6
    assert await statuses(live, *job_ids) == ["dead_letter"] * 2 + ["queued"] * 6
    assert time.monotonic() - start >= 0.5  # five at once, half a second's worth; then the sixth


async def test_a_purge_wants_to_know_what(live: Live) -> None:
    job_ids = [await dead(live), await dead(live, "x"), await dead(live, retryable=False)]
    for body in ({}, {"limit": 5}, {"all": False}):
        problem(await live.client.post("/v1/dead-letters/purge", json=body), 422, "validation_failed")
    operation = await ended(live.client, await live.client.post("/v1/dead-letters/purge", json={"error_code": "x"}))
    assert (operation["action"], operation["done"]) == ("purge", 1)
    assert await statuses(live, *job_ids) == ["dead_letter", "gone", "failed"]
    operation = await ended(
        live.client, await live.client.post("/v1/dead-letters/purge", json={"all": True, "status": "both"})
    )
    assert operation["done"] == 2
    assert await statuses(live, *job_ids) == ["gone"] * 3


async def test_the_same_key_is_the_same_operation(live: Live) -> None:
    key = {"Idempotency-Key": "once"}
    first = await live.client.post("/v1/dead-letters/replay", json={"queue": "q"}, headers=key)
    again = await live.client.post("/v1/dead-letters/replay", json={"queue": "q"}, headers=key)
    assert first.headers["location"] == again.headers["location"]
    other = await live.client.post("/v1/dead-letters/replay", json={"queue": "r"}, headers=key)
    problem(other, 409, "idempotency_conflict")
    async with await live.key("a") as tenant:
        theirs = await tenant.post("/v1/dead-letters/replay", json={"queue": "r"}, headers=key)
    assert theirs.headers["location"] != first.headers["location"]


async def test_an_operation_can_be_stopped(live: Live) -> None:
    job_ids = [await dead(live) for _ in range(3)]
    answer = await live.client.post("/v1/dead-letters/replay", json={"rate": 0.001})
    path = answer.headers["location"]
    async with asyncio.timeout(60):
        while (await live.client.get(path)).json()["done"] != 1:
            await asyncio.sleep(0.01)
    stopped = (await live.client.post(f"{path}/stop")).json()
    assert (stopped["status"], stopped["done"]) == ("stopped", 1)
    assert (await live.client.post(f"{path}/stop")).json() == stopped
    assert sorted(await statuses(live, *job_ids)) == ["dead_letter", "dead_letter", "queued"]


async def test_tenants_do_not_meet(live: Live) -> None:
    async with await live.key("a") as a, await live.key("b") as b, await live.key("") as nobody:
        mine, theirs = await dead(live, requester_id="a"), await dead(live, requester_id="b")
        assert await ids(a) == [mine]
        assert await ids(nobody) == []
        assert await ids(live.client) == [theirs, mine]
        for stranger in (b, nobody):
            for method, path in (("GET", ""), ("POST", "/replay"), ("DELETE", "")):
                details = problem(
                    await stranger.request(method, f"/v1/dead-letters/{mine}{path}"), 404, "job_not_found"
                )
                unknown = await stranger.request(method, f"/v1/dead-letters/{UNKNOWN}{path}")
                assert details["detail"] == unknown.json()["detail"].replace(UNKNOWN, mine)
            problem(await stranger.get(f"/v1/jobs/{mine}/attempts"), 404, "job_not_found")
        answer = await b.post("/v1/dead-letters/purge", json={"all": True})
        for stranger in (a, nobody):
            problem(await stranger.get(answer.headers["location"]), 404, "not_found")
            problem(await stranger.post(f"{answer.headers['location']}/stop"), 404, "not_found")
        assert (await ended(b, answer))["done"] == 1
        assert (await live.client.get(answer.headers["location"])).status_code == 200
        assert await statuses(live, mine, theirs) == ["dead_letter", "gone"]


async def test_scopes_are_asked_for(small: Live) -> None:
    job_id = await dead(small)
    async with await small.key("a", scopes=["jobs:read"]) as reader, small.bare() as anybody:
        for method, path in (
            ("POST", f"/{job_id}/replay"),
            ("DELETE", f"/{job_id}"),
            ("POST", "/replay"),
            ("POST", "/purge"),
        ):
            problem(await reader.request(method, f"/v1/dead-letters{path}"), 403, "forbidden")
            problem(await anybody.request(method, f"/v1/dead-letters{path}"), 401, "unauthorized")


async def test_attempts_and_the_lease_are_told(live: Live) -> None:
    job_id = await dead(live, max_attempts=2)
    await live.engine.requeue(job_id)
    (job,) = await live.engine.claim(ClaimRequest("gpu1~5ec2e7", ("q",), lease_ms=60_000))
    answer = await live.client.get(f"/v1/jobs/{job_id}/attempts")
    body = answer.json()
    assert [(a["attempt_id"], a["attempt"], a["outcome"]) for a in body["attempts"]] == [
        ("1", 1, "retried"),
        ("2", 2, "dead_lettered"),
        ("3", 3, None),
    ]
    assert body["attempts"][0]["error"]["code"] == "boom"
    assert body["lease"] == {
        "attempt_id": "3",
        "worker_id": "gpu1",
        "lease_expires_at": job.lease_expires_at,
        "heartbeat_at": job.heartbeat_at,
    }
    assert "5ec2e7" not in answer.text
    await live.engine.settle([commands.succeed(job)])
    assert (await live.client.get(f"/v1/jobs/{job_id}/attempts")).json()["lease"] is None


async def test_a_batch_that_was_cut_off_is_done_again_and_counted_once(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "LEASE_MS", 600_000)
    assert live.state.operations is not None
    await live.state.operations.__aexit__(None, None, None)  # the server's own: here others do the work
    job_ids = [await dead(live) for _ in range(4)]
    answer = await live.client.post("/v1/dead-letters/replay")
    replay = operations.ACTIONS["replay"]

    async def cut_off(engine: Engine, claims: tuple[Claim, ...], quotas: Quotas | None) -> None:
        await replay(engine, claims[:2], quotas)
        raise KeyboardInterrupt

    monkeypatch.setitem(operations.ACTIONS, "replay", cut_off)
    with pytest.raises(KeyboardInterrupt):
        await Operations(live.engine).sweep()
    monkeypatch.setitem(operations.ACTIONS, "replay", replay)
    other = Operations(live.engine)
    wait_s = await other.sweep()
    assert 0 < wait_s <= operations.LEASE_MS / 1000  # the lease of the one that is gone
    assert (await live.client.get(answer.headers["location"])).json()["done"] == 0
    monkeypatch.setattr(live.engine.store, "now", _later(await live.engine.store.now() + operations.LEASE_MS + 1))
    while await other.sweep() == 0.0:
        pass
    body = (await live.client.get(answer.headers["location"])).json()
    assert (body["status"], body["done"], body["refused"]) == ("done", 4, 0)
    assert await statuses(live, *job_ids) == ["queued"] * 4
    assert [(await live.engine.get(job_id)).event_seq for job_id in job_ids] == [4] * 4


async def test_an_operation_goes_on_after_a_clock_that_was_ahead(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    assert live.state.operations is not None
    await live.state.operations.__aexit__(None, None, None)
    data, now = await dead(live), await live.engine.store.now()
    with monkeypatch.context() as ahead:
        ahead.setattr(live.engine.store, "now", _later(now + 6 * 3_600_000))
        answer = await live.client.post("/v1/dead-letters/replay")
    other = Operations(live.engine)
    await other.sweep()  # it is moved to the clock as it is now
    while await other.sweep() == 0.0:
        pass
    assert (await live.client.get(answer.headers["location"])).json()["status"] == "done"
    assert await statuses(live, data) == ["queued"]


def _later(now: int) -> Callable[[], Awaitable[int]]:
    async def at() -> int:
        return now

    return at


@pytest.mark.parametrize("kind", stores.THREE if os.environ.get("CALLSHEET_DEEP") == "1" else ("sqlite",))
def test_an_operation_outlives_a_killed_server(kind: str, tmp_path: Path) -> None:
    url, count = stores.fresh_url(kind), 6
    port = str(free_port())
    job_ids = asyncio.run(_many_dead(url, count))
    variables = {"CALLSHEET_DATABASE_URL": url, "CALLSHEET_API_KEY": ADMIN}
    client = httpx2.Client(
        base_url=f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {ADMIN}"}, timeout=60, verify=False
    )
    first = Program(tmp_path, "serve", "--port", port, variables=variables)
    try:
        first.hear("at http://")
        eventually(lambda: _answers(client))
        answer = client.post("/v1/dead-letters/replay", json={"rate": 4})
        path = answer.headers["location"]
        eventually(lambda: client.get(path).json()["done"] >= 2)
        first.signal(signal.SIGKILL)
        assert first.end() == -signal.SIGKILL
    finally:
        first.clear_away()
    second = Program(tmp_path, "serve", "--port", port, variables=variables)
    try:
        second.hear("at http://")
        eventually(lambda: _answers(client))
        operation = eventually(lambda: (body := client.get(path).json())["status"] == "done" and body)
        assert (operation["done"], operation["refused"]) == (count, 0)
    finally:
        second.clear_away()
        client.close()
    assert asyncio.run(_events(url, job_ids)) == [4] * count  # each came back once


def _answers(client: httpx2.Client) -> bool:
    try:
        return client.get("/readyz").status_code == 200
    except httpx2.HTTPError:
        return False


async def _many_dead(url: str, count: int) -> list[str]:
    async with serving(url) as live:
        return [await dead(live) for _ in range(count)]


async def _events(url: str, made: list[str]) -> list[int]:
    async with Engine.from_url(url) as engine:
        return [(await engine.get(job_id)).event_seq for job_id in made]


def test_an_operation_is_read_as_it_was_written() -> None:
    result = operations.Operation("x", "purge", Wanted("a", kind="k"), 2.5, 7, batch=(Claim("j", 3),))
    document = operations._document(result, 4)
    assert operations._read(document) == result
    assert json.loads(document.body)["batch"] == [["j", 3]]
