"""Two tenants share one server: neither sees, changes or hears of the other's jobs, by any route that there is."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from callsheet.contracts.redis_gateway import streams
from callsheet.http.server import OPEN
from callsheet.kernel.wire import event_id
from tests.http.live import Live, frames, problem

OPERATIONS_WITHOUT_A_JOB = {
    "get /v1/jobs",
    "post /v1/jobs",
    "get /v1/events",
    "post /v1/events/ticket",
    # what is a tenant's own there: test_any_task.py, test_schedules.py and the matrix in tests/security
    "post /v1/jobs/batch",
    "get /v1/tasks",
    "get /v1/tasks/{name}",
    "get /v1/schedules",
    "get /v1/schedules/{name}",
    "put /v1/schedules/{name}",
    "delete /v1/schedules/{name}",
    "post /v1/schedules/{name}/pause",
    "post /v1/schedules/{name}/resume",
    "post /v1/schedules/{name}/run",
}


async def operations(live: Live) -> list[tuple[str, str]]:
    document = (await live.client.get("/openapi.json")).json()
    return [
        (method, path)
        for path, methods in document["paths"].items()
        if path not in OPEN
        for method in methods
        if method in {"get", "post", "put", "patch", "delete"}
    ]


async def leaked(answer: httpx2.Response, *secrets: str) -> list[str]:
    body = (await answer.aread()).decode()
    return [secret for secret in secrets if secret in body + str(answer.headers)]


async def test_every_route_with_a_job_in_it_is_closed_to_others(live: Live) -> None:
    async with await live.key("a") as a, await live.key("b") as b, await live.key("") as nobody:
        job_id = await live.job(a, payload={"prompt": "a's own secret"})
        tries = 0
        for method, path in await operations(live):
            if "{job_id}" not in path:
                assert f"{method} {path}" in OPERATIONS_WITHOUT_A_JOB, f"say how {path} keeps tenants apart"
                continue
            tries += 1
            url = path.replace("{job_id}", job_id)
            for stranger in (b, nobody):
                for headers in ({}, {"Last-Event-ID": "1-1"}, {"Accept": "application/json"}):
                    answer = await stranger.request(method, url, headers=headers)
                    body = problem(answer, 404, "job_not_found")
                    unknown = await stranger.request(method, url.replace(job_id, job_id[::-1]), headers=headers)
                    assert body["detail"] == unknown.json()["detail"].replace(job_id[::-1], job_id)
                    assert await leaked(answer, "secret") == []
            assert (await a.get(f"/v1/jobs/{job_id}")).json()["status"] == "queued"
        assert tries >= 4


async def test_lists_show_one_s_own_jobs_alone(live: Live) -> None:
    async with await live.key("a") as a, await live.key("b") as b, await live.key("") as nobody:
        mine = {await live.job(a) for _ in range(3)}
        theirs = await live.job(b)
        for query in ("", "?status=queued", "?task=chat", "?queue=default", "?limit=1", "?cursor=999999"):
            job_id = {job["job_id"] for job in (await a.get(f"/v1/jobs{query}")).json()["jobs"]}
            assert job_id <= mine
            assert job_id
        assert [job["job_id"] for job in (await b.get("/v1/jobs")).json()["jobs"]] == [theirs]
        assert (await nobody.get("/v1/jobs")).json() == {"jobs": [], "next": None}
        assert len((await live.client.get("/v1/jobs")).json()["jobs"]) == 4  # an admin sees all


async def test_pages_go_through_all_jobs_once(live: Live) -> None:
    async with await live.key("a") as a, await live.key("b") as b:
        mine = [await live.job(client) for _ in range(7) for client in (a, b)][::2]
        results, cursor = [], ""
        while cursor is not None:
            page = (await a.get(f"/v1/jobs?limit=3{cursor and '&cursor='}{cursor}")).json()
            results += [job["job_id"] for job in page["jobs"]]
            cursor = page["next"]
        assert results == mine[::-1]


async def test_a_multiplexed_stream_with_another_s_job_in_it_does_not_open(live: Live) -> None:
    async with await live.key("a") as a, await live.key("b") as b:
        mine, theirs = await live.job(a), await live.job(b)
        for jobs in (theirs, f"{mine},{theirs}", f"{theirs},{mine}", f"{mine},*"):
            problem(await a.get(f"/v1/events?jobs={jobs}"), 404, "job_not_found")
        assert not live.state.streams.total


async def test_the_stream_of_all_jobs_is_of_one_s_own(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LOOK_S", 0.02)
    async with await live.key("a") as a, await live.key("b") as b:
        theirs = [await live.job(b)]
        mine = await live.job(a)
        messages: list[Any] = []
        async with a.stream("GET", "/v1/events") as answer:
            async for frame in frames(answer):
                messages.append(frame)
                if frame.event == "hello":
                    theirs.append(await live.job(b))
                    later = await live.job(a)
                    await b.post(f"/v1/jobs/{theirs[0]}/cancel")
                    await a.post(f"/v1/jobs/{mine}/cancel")
                if {frame.data.get("job_id") for frame in messages} >= {mine, later}:
                    break
        assert not any(job_id in json.dumps(messages) for job_id in theirs)
        assert [job["job_id"] for job in messages[0].data["jobs"]] == [mine]


async def test_a_ticket_is_of_its_maker_and_for_its_stream(live: Live) -> None:
    async with await live.key("a") as a, await live.key("b") as b, live.bare() as nobody:
        mine, theirs = await live.job(a), await live.job(b)
        ticket = (await a.post("/v1/events/ticket")).json()["ticket"]
        problem(await nobody.get(f"/v1/jobs/{theirs}/events?ticket={ticket}"), 401, "unauthorized")
        many = (await a.post(f"/v1/events/ticket?jobs={theirs}")).json()["url"]
        problem(await nobody.get(many), 404, "job_not_found")
        url = (await a.post("/v1/events/ticket?jobs=*")).json()["url"]
        async with nobody.stream("GET", url) as answer:
            hello = await anext(frames(answer))
        assert [job["job_id"] for job in hello.data["jobs"]] == [mine]


async def test_idempotency_keys_of_tenants_do_not_meet(live: Live) -> None:
    headers = {"Idempotency-Key": "the-same"}
    async with await live.key("a") as a, await live.key("b") as b:
        first = await a.post("/v1/jobs", json={"task": "chat", "payload": {"n": 1}}, headers=headers)
        other = await b.post("/v1/jobs", json={"task": "chat", "payload": {"n": 2}}, headers=headers)
        again = await b.post("/v1/jobs", json={"task": "chat", "payload": {"n": 2}}, headers=headers)
    assert [answer.status_code for answer in (first, other, again)] == [202, 202, 202]
    assert first.json()["job_id"] != other.json()["job_id"] == again.json()["job_id"]


async def test_two_keys_of_one_tenant_share_its_jobs_and_its_idempotency_keys(small: Live) -> None:
    headers = {"Idempotency-Key": "the-same"}
    body = {"task": "chat", "payload": {}}
    async with await small.key("a") as one, await small.key("a") as two:
        job_ids = [(await key.post("/v1/jobs", json=body, headers=headers)).json()["job_id"] for key in (one, two)]
        assert job_ids[0] == job_ids[1]
        assert (await two.get(f"/v1/jobs/{job_ids[0]}")).status_code == 200


async def test_an_event_id_of_another_s_job_tells_nothing(live: Live) -> None:
    async with await live.key("a") as a, await live.key("b") as b:
        mine, theirs = await live.job(a), await live.job(b, payload={"prompt": "b's own secret"})
        other = await live.engine.get(theirs)
        last = event_id(other.event_ms, other.event_seq)
        async with a.stream("GET", f"/v1/jobs/{mine}/events", headers={"Last-Event-ID": last}) as answer:
            first = await anext(frames(answer))
        assert first.event in {"reset", "hello"}
        assert first.data["job"]["job_id"] == mine
        assert "secret" not in json.dumps(first)
