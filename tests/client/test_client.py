from __future__ import annotations

import asyncio

import pytest

from callsheet.client import (
    Client,
    Conflict,
    Forbidden,
    InvalidRequest,
    KeyConflict,
    NoSuchJob,
    Patience,
    TooManyRequests,
    Unauthorized,
)
from callsheet.http.keys import ApiKeys
from callsheet.kernel.errors import (
    IdempotencyConflict,
    InvalidInput,
    JobCanceled,
    JobFailed,
    JobNotFound,
    ResultTimeout,
)
from tests.client.conftest import QUICK, ServerState, at_work
from tests.client.proxy import before
from tests.http.live import ADMIN

NOBODY = "00000000-0000-7000-8000-000000000000"


async def test_a_job_is_created_followed_and_waited_for(site: ServerState, client: Client) -> None:
    receipt = await client.create("chat", {"prompt": "count 3"}, ttl_s=600)
    assert (receipt.task, receipt.status, receipt.ttl_s) == ("chat", "queued", 600)
    events = [event async for event in client.events(receipt.job_id)]
    assert [event.type for event in events] == ["queued", "running", "token", "token", "token", "progress", "done"]
    assert [event.seq for event in events] == [1, 2, 3, 4, 5, 6, 7]
    assert [event.id for event in events] == await site.event_ids(receipt.job_id)
    assert (events[5].progress, events[5].data["message"], events[6].ends) == (50.0, "half way", True)
    assert await client.wait(receipt.job_id) == {"text": "0 1 2 ", "system": "", "model": ""}
    job = await client.get(receipt.job_id)
    assert (job.status, job.ended, job.progress, job.attempts, job.ttl_s) == ("done", True, 100.0, 1, 600)
    assert (job.payload, job.last_event_id) == ({"prompt": "count 3"}, events[-1].id)
    assert job.updated_ts >= job.created_ts > 1_700_000_000_000


async def test_events_go_on_after_an_id(site: ServerState, client: Client) -> None:
    job_id = (await client.create("chat", {"prompt": "count 3"})).job_id
    every = [event async for event in client.events(job_id)]
    assert [event async for event in client.events(job_id, every[3].id)] == every[4:]
    assert [event async for event in client.events(job_id, every[-1].id)] == []


async def test_an_unknown_id_gets_a_reset_and_then_what_comes(site: ServerState, client: Client) -> None:
    job_id = (await client.create("chat", {"prompt": "gate 1"})).job_id
    await site.begun.wait()
    events = []
    async for event in client.events(job_id, "5-99"):
        events.append(event)
        site.gate.set()
    assert [event.type for event in events] == ["reset", "done"]
    assert events[0].data["job"]["status"] == "running"
    assert events[0].id == (await site.event_ids(job_id))[-2]
    assert [event.type async for event in client.events(job_id, "5-99")] == ["reset"]


async def test_an_id_that_is_none_is_refused_here(client: Client) -> None:
    with pytest.raises(InvalidInput, match="an event id looks like"):
        client.events(NOBODY, "yesterday")


async def test_how_a_job_ended_is_raised(site: ServerState, client: Client) -> None:
    failed_id = (await client.create("chat", {"prompt": "fail"})).job_id
    with pytest.raises(JobFailed, match="it is broken") as excinfo:
        await client.wait(failed_id)
    assert (excinfo.type, excinfo.value.job_error["code"]) == (JobFailed, "broken")
    waiting = (await client.create("chat", {"prompt": "gate"})).job_id
    with pytest.raises(ResultTimeout, match="has not ended within 10ms; it goes on"):
        await client.wait(waiting, timeout="10ms")
    await site.begun.wait()
    assert (await client.cancel(waiting, "enough")).job_id == waiting
    with pytest.raises(JobCanceled):
        await client.wait(waiting)
    assert (await client.ended(waiting)).status == "canceled"


async def test_a_cancel_may_be_repeated_but_not_undo_an_end(idle: ServerState, client: Client) -> None:
    canceled_id = (await client.create("embed", {"input": "nobody takes it"})).job_id
    assert (await client.cancel(canceled_id)).status == "canceled"
    assert (await client.cancel(canceled_id)).status == "canceled"
    done_id = (await client.create("chat", {"prompt": "count 1"})).job_id
    async with at_work(idle):
        await client.wait(done_id)
    with pytest.raises(Conflict) as excinfo:
        await client.cancel(done_id)
    assert (excinfo.value.status, excinfo.value.code) == (409, "illegal_move")


async def test_jobs_are_listed_over_pages(idle: ServerState, client: Client) -> None:
    job_ids = [(await client.create("embed", {"input": str(n)})).job_id for n in range(103)]
    chat = (await client.create("chat", {"prompt": "count 1"})).job_id
    await client.cancel(chat)
    assert [job.job_id async for job in client.list(task="embed")] == job_ids[::-1]
    assert [job.job_id async for job in client.list(limit=3)] == [chat, *job_ids[:-3:-1]]
    assert [job.job_id async for job in client.list(limit=101, status="queued")] == job_ids[:1:-1]
    assert [job.job_id async for job in client.list(status="canceled")] == [chat]
    assert [job async for job in client.list(queue="other")] == []
    assert [job async for job in client.list(limit=0)] == []


async def test_text_streams_piece_by_piece(site: ServerState, client: Client) -> None:
    pieces = []
    async for piece in client.stream_text("gate 3", system="short", model="m1"):
        pieces.append(piece)
        if len(pieces) == 3:
            site.gate.set()
    assert pieces == ["0 ", "1 ", "2 "]
    assert [piece async for piece in client.stream_text("echo all at once")] == ["all at once"]
    with pytest.raises(JobFailed, match="broken"):
        [piece async for piece in client.stream_text("fail")]
    (job, *_) = [job async for job in client.list(limit=3)][2:]
    assert job.payload == {"prompt": "gate 3", "system": "short", "model": "m1"}


async def test_many_jobs_come_over_one_stream(site: ServerState, client: Client) -> None:
    ids = [(await client.create("chat", {"prompt": f"count {n}"})).job_id for n in (1, 2, 3)]
    seen: dict[str, list[str]] = {job_id: [] for job_id in ids}
    async with before(site.url) as proxy, Client(proxy.url, ADMIN, patience=QUICK) as other:
        async for event in other.events_of(*ids, ids[0]):
            seen[event.job_id].append(event.id)
    assert seen == {job_id: await site.event_ids(job_id) for job_id in ids}


async def test_all_jobs_can_be_watched(idle: ServerState, client: Client) -> None:
    old = (await client.create("embed", {"input": "waits"})).job_id
    stream = client.events_of("*")
    first = await anext(stream)
    assert (first.type, first.job_id, first.data["job"]["status"]) == ("reset", old, "queued")
    await client.cancel(old)
    assert [(await anext(stream)).type] == ["canceled"]
    new = (await client.create("chat", {"prompt": "count 1"})).job_id
    async with at_work(idle):
        events = [await anext(stream) for _ in range(5)]
    assert [event.type for event in events] == ["queued", "running", "token", "progress", "done"]
    assert {event.job_id for event in events} == {new}
    await stream.aclose()


async def test_no_jobs_are_no_stream(client: Client) -> None:
    with pytest.raises(InvalidInput, match="which jobs"):
        client.events_of()


async def test_the_same_key_finds_the_same_job_and_no_other(client: Client) -> None:
    first = await client.create("embed", {"input": "a"}, idempotency_key="k1")
    assert await client.create("embed", {"input": "a"}, idempotency_key="k1") == first
    with pytest.raises(KeyConflict) as excinfo:
        await client.create("embed", {"input": "b"}, idempotency_key="k1")
    assert isinstance(excinfo.value, IdempotencyConflict)
    assert len({(await client.create("embed", {"input": "a"})).job_id for _ in range(2)}) == 2
    with pytest.raises(InvalidInput, match="visible ASCII"):
        await client.create("embed", {"input": "a"}, idempotency_key="with space")


async def test_refusals_are_typed_and_keep_what_was_said(idle: ServerState, client: Client) -> None:
    with pytest.raises(NoSuchJob) as missing:
        await client.get(NOBODY)
    assert isinstance(missing.value, JobNotFound)
    assert (missing.value.status, missing.value.code, bool(missing.value.request_id)) == (404, "job_not_found", True)
    with pytest.raises(NoSuchJob):
        [event async for event in client.events(NOBODY)]
    with pytest.raises(InvalidRequest, match="unknown_task") as wrong:
        await client.create("nothing", {})
    assert isinstance(wrong.value, InvalidInput)
    assert wrong.value.errors[0]["where"] == "task"
    with pytest.raises(InvalidInput, match="cannot be sent as JSON"):
        await client.create("chat", {"prompt": object()})
    text, _ = await ApiKeys(idle.live.engine.store).create("reader", scopes=["jobs:read"])
    async with Client(idle.url, text, patience=QUICK) as reader:
        with pytest.raises(Forbidden, match="jobs:write"):
            await reader.create("chat", {})


@pytest.mark.parametrize("key", ["", "cs_live_wrong"])
async def test_a_wrong_key_is_told_at_once(idle: ServerState, key: str) -> None:
    async with Client(idle.url, key, patience=QUICK) as client:
        with pytest.raises(Unauthorized) as excinfo:
            await client.create("chat", {})
        assert (excinfo.value.status, excinfo.value.code) == (401, "unauthorized")
        with pytest.raises(Unauthorized):
            [event async for event in client.events(NOBODY)]


async def test_a_revoked_key_ends_the_stream_with_an_error(idle: ServerState) -> None:
    assert idle.live.state.keys is not None
    text, key = await idle.live.state.keys.create("soon gone")
    async with before(idle.url) as proxy, Client(proxy.url, text, patience=QUICK) as client:
        job_id = (await client.create("embed", {"input": "waits"})).job_id
        stream = client.events(job_id)
        assert (await anext(stream)).type == "queued"
        assert await idle.live.state.keys.revoke(key.key_id)
        proxy.cut_all()
        with pytest.raises(Unauthorized, match="not known, or not any more"):
            await anext(stream)


async def test_too_many_requests_are_sent_again_when_the_server_says(idle: ServerState) -> None:
    keys = ApiKeys(idle.live.engine.store)
    text, _ = await keys.create("slow", rate=1.0)
    async with Client(idle.url, text, patience=Patience(retry_for_s=0.0)) as hasty:
        with pytest.raises(TooManyRequests) as excinfo:
            for _ in range(4):
                await hasty.create("embed", {"input": "a"})
        assert excinfo.value.retry_after_s is not None
        assert excinfo.value.retry_after_s >= 1.0
    async with Client(idle.url, text, patience=QUICK) as patient:
        assert len({(await patient.create("embed", {"input": "a"})).job_id for _ in range(2)}) == 2


async def test_the_environment_names_server_and_key(site: ServerState, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLSHEET_URL", f"{site.url}/")
    monkeypatch.setenv("CALLSHEET_API_KEY", ADMIN)
    async with Client() as client:
        assert client.url == site.url
        job_id = (await client.create("chat", {"prompt": "count 1"})).job_id
        assert (await client.wait(job_id, timeout=60))["text"] == "0 "


async def test_leaving_the_loop_closes_the_connection(idle: ServerState, client: Client) -> None:
    job_id = (await client.create("embed", {"input": "waits"})).job_id
    stream = client.events(job_id)
    await anext(stream)
    assert len(idle.live.state.open) == 1
    await stream.aclose()
    async with asyncio.timeout(60):
        while idle.live.state.open:
            await asyncio.sleep(0.01)


async def test_a_job_of_any_task_is_created_with_its_options(site: ServerState, client: Client) -> None:
    first = await client.create("resize", {"n": 1}, unchecked=True, unique_key="cat", delay="10m", queue="media")
    again = await client.create("resize", {"n": 1}, unchecked=True, unique_key="cat")
    assert again.job_id == first.job_id
    job = await site.live.engine.get(first.job_id)
    assert (job.kind, job.queue, job.held) == ("resize", "media", "delay")
    with pytest.raises(InvalidRequest):
        await client.create("resize", {})


async def test_many_jobs_are_created_once(site: ServerState, client: Client) -> None:
    jobs = [{"task": "resize", "payload": {"n": n}, "unchecked": True} for n in range(3)]
    ids = await client.create_many(jobs, idempotency_key="batch")
    assert await client.create_many(jobs, idempotency_key="batch") == ids
    assert len(set(ids)) == 3
    assert all(task["name"] for task in await client.tasks())
