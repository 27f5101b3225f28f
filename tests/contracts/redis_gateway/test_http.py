"""The gateway's HTTP clauses, through a real server, on each of the three stores."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest

from callsheet.http import sse
from callsheet.http.limits import Limits
from callsheet.kernel import commands
from callsheet.kernel.job import Job, NewEvent
from callsheet.kernel.retry import JobError
from callsheet.kernel.settlement import Settlement
from callsheet.store.protocol import ClaimRequest
from tests.http.live import Frame, Live, frames, serving

from . import KINDS, fresh_url, plain_client

TASKS = ("chat", "plan", "code", "tool", "rag", "embed")
UNKNOWN = "0199f0c2-7f7a-7d51-b3cd-0d52b5f0f5b1"


@pytest.fixture
async def live(url: str) -> AsyncIterator[Live]:
    async with serving(url, job_ttl_s=777) as live:
        yield live


async def post(live: Live, body: Any, **headers: str) -> httpx2.Response:
    return await live.client.post("/v1/jobs", json=body, headers=headers)


async def claimed(live: Live) -> Job:
    (job,) = await live.engine.claim(ClaimRequest("w"))
    return job


async def followed(live: Live, job_id: str, last_id: str = "") -> list[Frame]:
    """All frames of a stream that ends."""
    headers = {"Last-Event-ID": last_id} if last_id else {}
    async with asyncio.timeout(60), live.client.stream("GET", f"/v1/jobs/{job_id}/events", headers=headers) as answer:
        return [frame async for frame in frames(answer)]


async def test_post_takes_the_six_tasks_and_no_other(live: Live) -> None:
    for task in TASKS:
        answer = await post(live, {"task": task, "payload": {}})
        assert answer.status_code == 202
        assert (await live.engine.get(answer.json()["job_id"])).kind == task
    for wrong in ("Chat", "", "sing", None, 7):
        answer = await post(live, {"task": wrong, "payload": {}})
        code = "unknown_task" if wrong in ("Chat", "sing") else "validation_failed"
        assert (answer.status_code, answer.json()["code"], answer.json()["errors"][0]["where"]) == (422, code, "task")


async def test_post_takes_only_an_object_as_payload(live: Live) -> None:
    wrongs: tuple[Any, ...] = ([], "text", 7, None, True)
    for wrong in wrongs:
        answer = await post(live, {"task": "chat", "payload": wrong})
        assert (answer.status_code, answer.json()["code"]) == (422, "validation_failed")
    assert (await post(live, {"task": "chat"})).status_code == 422
    payload = {"nested": {"list": [1, 2.5, None, "ü\u2028"]}}
    answer = await post(live, {"task": "chat", "payload": payload})
    assert json.loads((await live.engine.get(answer.json()["job_id"])).payload) == payload


async def test_post_refuses_a_payload_over_200_kb(live: Live) -> None:
    answer = await post(live, {"task": "chat", "payload": {"text": "x" * 204_000}})
    assert answer.status_code == 202
    answer = await post(live, {"task": "chat", "payload": {"text": "x" * 205_000}})
    assert (answer.status_code, answer.json()["code"]) == (413, "payload_too_large")
    assert sum(queue.ready for queue in (await live.engine.backlog()).values()) == 1


async def test_ttl_s_defaults_to_job_ttl_s(live: Live) -> None:
    for query, expected in ({}, 777), ({"ttl_s": 60}, 60):
        answer = await post(live, {"task": "chat", "payload": {}, **query})
        assert (await live.engine.get(answer.json()["job_id"])).ttl_s == expected
    for wrong in (0, -1, 10**12, 1.5, "60"):
        assert (await post(live, {"task": "chat", "payload": {}, "ttl_s": wrong})).status_code == 422


async def test_a_full_queue_refuses_more(url: str) -> None:
    async with serving(url, limits=Limits(queue_depth=2)) as live:
        for _ in range(2):
            await live.job()
        refusal = await post(live, {"task": "chat", "payload": {}})
        assert (refusal.status_code, refusal.json()["code"]) == (429, "queue_full")
        assert int(refusal.headers["retry-after"]) >= 1
        assert refusal.json()["estimated_wait_s"] >= 0
        await live.engine.settle([commands.succeed(await claimed(live))])
        await live.job()


@pytest.mark.parametrize("kind", KINDS)
async def test_post_writes_hash_event_and_message(kind: str) -> None:
    url = fresh_url(kind)
    async with serving(url) as live, plain_client(live.engine.store.target.url) as client:  # type: ignore[attr-defined]
        answer = (await post(live, {"task": "plan", "payload": {"goal": "tea"}, "ttl_s": 60})).json()
        job_id = answer["job_id"]
        row = await client.hgetall(f"job:{job_id}")
        assert (row["status"], row["task"], json.loads(row["payload"])) == ("queued", "plan", {"goal": "tea"})
        ((_, event),) = await client.xrange(f"job:{job_id}:events")
        assert (event["type"], event["step"], event["data"]) == ("queued", "gateway.enqueue", "{}")
        ((_, message),) = await client.xrange("jobs:stream")
        assert message == {"job_id": job_id, "task": "plan", "payload": row["payload"]}
        for key in (f"job:{job_id}", f"job:{job_id}:events"):
            assert 0 < await client.ttl(key) <= 60
        await post(live, {"task": "plan", "payload": {}}, **{"Idempotency-Key": "k"})
        assert await client.hget("idempotency:k", "job_id")
        assert await client.ttl("idempotency:k") > 0


async def test_a_key_is_optional(live: Live) -> None:
    body = {"task": "chat", "payload": {}}
    ids = {(await post(live, body)).json()["job_id"] for _ in range(3)}
    assert len(ids) == 3


async def test_the_same_key_finds_the_first_job(live: Live) -> None:
    body = {"task": "chat", "payload": {"a": 1, "b": 2}}
    first = await post(live, body, **{"Idempotency-Key": "k1"})
    again = await post(live, {"payload": {"b": 2, "a": 1}, "task": "chat"}, **{"Idempotency-Key": "k1"})
    assert (again.status_code, again.content) == (202, first.content)
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    other = await post(live, {"task": "chat", "payload": {}}, **{"Idempotency-Key": "k1"})
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")
    assert sum(queue.ready for queue in (await live.engine.backlog()).values()) == 1


async def test_get_returns_the_deserialized_job(live: Live) -> None:
    job_id = await live.job(payload={"prompt": "hi"})
    body = (await live.client.get(f"/v1/jobs/{job_id}")).json()
    assert {
        "job_id",
        "task",
        "payload",
        "status",
        "created_ts",
        "updated_ts",
        "ttl_s",
        "result",
        "error",
    } <= body.keys()
    assert (body["job_id"], body["task"], body["payload"], body["status"]) == (
        job_id,
        "chat",
        {"prompt": "hi"},
        "queued",
    )
    assert (body["ttl_s"], body["result"], body["error"]) == (777, None, None)
    await live.engine.settle([commands.succeed(await claimed(live), '{"text":"hello"}')])
    body = (await live.client.get(f"/v1/jobs/{job_id}")).json()
    assert (body["status"], body["result"]) == ("done", {"text": "hello"})
    failed = await live.job()
    await live.engine.settle(
        [commands.fail(await claimed(live), JobError("no_model", "none", retryable=False), rand=0)]
    )
    body = (await live.client.get(f"/v1/jobs/{failed}")).json()
    assert (body["status"], body["error"]["code"]) == ("error", "no_model")
    assert (await live.client.get(f"/v1/jobs/{UNKNOWN}")).status_code == 404


async def test_events_of_an_unknown_job_are_not_found(live: Live) -> None:
    for job_id in (UNKNOWN, "no-uuid", "%00"):
        answer = await live.client.get(f"/v1/jobs/{job_id}/events")
        assert (answer.status_code, answer.json()["code"]) == (404, "job_not_found")


async def test_a_stream_begins_with_hello(live: Live) -> None:
    job_id = await live.job()
    await live.engine.settle([commands.succeed(await claimed(live))])
    first, *_ = await followed(live, job_id)
    assert (first.event, first.id) == ("hello", "")
    assert first.data["job"] == {**(await live.client.get(f"/v1/jobs/{job_id}")).json(), "partial": False}


async def test_a_large_result_is_left_out_of_hello(live: Live) -> None:
    job_id = await live.job(payload={"text": "x" * 150_000})
    await live.engine.settle([commands.succeed(await claimed(live), json.dumps("y" * 900_000))])
    first, *events = await followed(live, job_id)
    assert (first.data["job"]["partial"], first.data["job"]["status"]) == (True, "done")
    assert len(json.dumps(first.data)) < 4_000
    assert [frame.event for frame in events] == ["queued", "running", "done"]
    assert len((await live.client.get(f"/v1/jobs/{job_id}")).json()["result"]) == 900_000


async def test_the_first_block_of_a_stream_is_hello_with_the_time_to_come_back(live: Live) -> None:
    """Parsers such as httpx2-sse make an empty message of a block that has nothing but `retry`."""
    job_id = await live.job()
    await live.engine.settle([commands.succeed(await claimed(live))])
    answer = await live.client.get(f"/v1/jobs/{job_id}/events", headers={"Accept": "text/event-stream"})
    blocks = [block.split("\n") for block in answer.text.removesuffix("\n\n").split("\n\n")]
    assert [line.partition(":")[0] for line in blocks[0]] == ["retry", "event", "data"]
    assert blocks[0][1] == "event: hello"
    assert all(any(line.startswith("data: ") for line in block) for block in blocks)


async def test_heartbeats_are_comments(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "PING_S", 0.02)
    job_id = await live.job()
    async with asyncio.timeout(60), live.client.stream("GET", f"/v1/jobs/{job_id}/events") as answer:
        comments = 0
        async for line in answer.aiter_lines():
            comments += line.startswith(":")
            if comments == 3:
                break


async def test_a_stream_goes_on_after_the_last_id(live: Live) -> None:
    job_id = await live.job()
    job = await claimed(live)
    for n in range(5):
        await live.engine.settle([commands.note(job, NewEvent("log", "s", f'{{"n":{n}}}'))])
    await live.engine.settle([commands.succeed(job)])
    _, *events = await followed(live, job_id)
    assert [frame.data["seq"] for frame in events] == list(range(1, 9))
    for place in range(len(events) - 1):
        hello, *rest = await followed(live, job_id, events[place].id)
        assert hello.event == "hello"
        assert rest == events[place + 1 :]
    over = await live.client.get(f"/v1/jobs/{job_id}/events", headers={"Last-Event-ID": events[-1].id})
    assert over.status_code == 204
    for word in ("last_id", "lastEventId"):
        answer = await live.client.get(f"/v1/jobs/{job_id}/events", params={word: events[-2].id})
        ids = [line for line in answer.text.split("\n") if line.startswith("id: ")]
        assert ids == [f"id: {events[-1].id}"]


async def test_an_event_is_its_type_and_its_data(live: Live) -> None:
    job_id = await live.job()
    job = await claimed(live)
    await live.engine.settle([commands.note(job, NewEvent("token", "chat", '{"text":"a\\nb\u2028c"}'))])
    await live.engine.settle([commands.succeed(job)])
    token = next(frame for frame in await followed(live, job_id) if frame.event == "token")
    stored_events = (await live.engine.store.events({job_id: 2}, 1))[0]
    assert (token.data["type"], token.data["step"], token.data["ts"]) == ("token", "chat", stored_events.ms)
    assert token.data["data"] == {"text": "a\nb\u2028c"}
    assert token.id == f"{stored_events.ms}-{stored_events.seq}"


async def test_the_stream_ends_after_a_terminal_event(live: Live) -> None:
    ends: dict[str, Callable[[Job], Settlement]] = {
        "done": commands.succeed,
        "error": lambda job: commands.fail(job, JobError("E", "no", retryable=False), rand=0),
        "canceled": lambda job: commands.cancel(job, "enough"),
    }
    for word, end in ends.items():
        job_id = await live.job()
        following = asyncio.create_task(followed(live, job_id))
        await live.engine.settle([end(await claimed(live))])
        assert [frame.event for frame in await following] == ["hello", "queued", "running", word]


async def test_a_job_is_found_by_its_id_in_upper_case(live: Live) -> None:
    job_id = await live.job()
    upper = job_id.upper()
    assert (await live.client.get(f"/v1/jobs/{upper}")).json()["job_id"] == job_id
    assert (await live.client.post(f"/v1/jobs/{upper}/cancel")).json()["status"] == "canceled"
    assert [frame.event for frame in await followed(live, upper)] == ["hello", "queued", "canceled"]
    other = await live.key("other")
    for path in (f"/v1/jobs/{upper}", f"/v1/jobs/{upper}/events"):
        assert (await other.get(path)).status_code == 404
