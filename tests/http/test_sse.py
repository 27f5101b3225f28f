"""The event stream of one job: its first frames, their order, and its end."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest

from callsheet.contracts.redis_gateway.models import EventBody, Snapshot
from callsheet.http import sse
from callsheet.kernel.job import Event
from callsheet.kernel.wire import event_id
from tests.http.live import Frame, Live, frames

LAST = "Last-Event-ID"


async def read(live: Live, path: str, last: str | None = None) -> list[Frame]:
    """Read all frames until the server ends the stream."""
    headers = {} if last is None else {LAST: last}
    async with live.client.stream("GET", path, headers=headers) as answer:
        assert answer.status_code == 200
        return [frame async for frame in frames(answer)]


def events(job_id: str) -> str:
    return f"/v1/jobs/{job_id}/events"


async def test_hello_comes_first_and_is_the_whole_job(live: Live) -> None:
    job = await live.running()
    body = (await live.client.get(f"/v1/jobs/{job.job_id}")).json()
    async with live.client.stream("GET", events(job.job_id)) as answer:
        hello = await anext(frames(answer))
    assert (hello.event, hello.id) == ("hello", "")
    assert hello.data == {"job": {**body, "partial": False}, "last_event_id": body["last_event_id"]}


async def test_a_stream_has_the_headers_that_keep_it_unbuffered(small: Live) -> None:
    job_id = await small.job()
    async with small.client.stream("GET", events(job_id), headers={"Accept-Encoding": "gzip"}) as answer:
        headers = dict(answer.headers)
        assert headers["content-type"] == "text/event-stream; charset=utf-8"
        assert headers["cache-control"] == "no-store, no-transform"
        assert headers["x-accel-buffering"] == "no"
        assert headers["x-content-type-options"] == "nosniff"
        assert not {"content-encoding", "content-length"} & set(headers)
        first = await anext(answer.aiter_lines())
    assert 1_000 <= int(first.removeprefix("retry: ")) <= 5_000


async def test_events_come_in_order_with_rising_ids_until_the_end(live: Live) -> None:
    job = await live.running()
    await live.note(job, *map(str, range(300)))
    await live.done(job)
    hello, *rest = await read(live, events(job.job_id))
    assert hello.event == "hello"
    assert [frame.data["seq"] for frame in rest] == list(range(1, 304))
    assert [frame.event for frame in rest] == ["queued", "running", *["log"] * 300, "done"]
    assert all(frame.id == frame.data["id"] == f"{frame.data['ts']}-{frame.data['seq']}" for frame in rest)
    assert [frame.data["data"] for frame in rest[2:-1]] == list(range(300))
    stored_events = await live.engine.store.events({job.job_id: 0}, 1000)
    assert [frame.id for frame in rest] == [event_id(e.ms, e.seq) for e in stored_events]


async def test_every_frame_is_as_the_document_says(live: Live) -> None:
    job = await live.running()
    await live.note(job, '{"a":1}', "null", "[]")
    await live.fail(job)
    hello, *rest = await read(live, events(job.job_id))
    assert Snapshot.model_validate(hello.data).model_dump(exclude_unset=True) == hello.data
    assert [EventBody.model_validate(frame.data).model_dump() for frame in rest] == [frame.data for frame in rest]


async def test_a_stream_can_be_taken_up_after_any_event(live: Live) -> None:
    job = await live.running()
    await live.note(job, *"abcdefgh")
    await live.done(job)
    _, *whole = await read(live, events(job.job_id))
    for place, frame in enumerate(whole[:-1]):
        hello, *rest = await read(live, events(job.job_id), frame.id)
        assert (hello.event, rest) == ("hello", whole[place + 1 :])
        by_query = await read(live, f"{events(job.job_id)}?lastEventId={frame.id}")
        assert by_query[1:] == rest


@pytest.mark.parametrize("end", ["done", "canceled", "error"])
async def test_after_the_last_event_of_an_ended_job_there_is_nothing(live: Live, end: str) -> None:
    job = await live.running() if end != "canceled" else await live.engine.get(await live.job())
    if end == "done":
        await live.done(job)
    elif end == "canceled":
        await live.client.post(f"/v1/jobs/{job.job_id}/cancel")
    else:
        await live.fail(job)
    *_, last = await read(live, events(job.job_id))
    assert last.event == end
    for headers, query in (({LAST: last.id}, ""), ({}, f"?lastEventId={last.id}")):
        answer = await live.client.get(f"{events(job.job_id)}{query}", headers=headers)
        assert (answer.status_code, answer.content) == (204, b"")


async def test_streams_and_polling_tell_the_same(live: Live) -> None:
    job = await live.running()
    await live.note(job, *map(str, range(20)), '{"a":[1.50,"\u00e9"]}')
    await live.done(job)
    raw = (await live.client.get(events(job.job_id))).text
    streamed = [line.removeprefix("data: ") for line in raw.split("\n") if line.startswith("data: ")][1:]
    page = (await live.client.get(f"{events(job.job_id)}?after=")).text
    assert ",".join(streamed) in page
    polled, last, is_over = [], "", False
    while not is_over:
        body = (await live.client.get(f"{events(job.job_id)}?after={last}")).json()
        polled += body["events"][:7]
        is_over, last = body["ended"] and len(body["events"]) <= 7, polled[-1]["id"]
    assert polled == [json.loads(line) for line in streamed]
    assert body["last_event_id"] == last
    over = (await live.client.get(f"{events(job.job_id)}?after={last}")).json()
    assert over == {"events": [], "last_event_id": last, "ended": True}


async def test_polling_after_an_unknown_id_begins_anew(live: Live) -> None:
    for after in ["garbage", '"', '","x":"', "0", "0-0", "1-1", "%00", "9-999999"]:
        job_id = await live.job()
        body = (await live.client.get(f"{events(job_id)}?after={after}")).json()
        assert [event["type"] for event in body["events"]] == ["queued"]
        assert body["last_event_id"] == body["events"][0]["id"]
        assert not body["ended"]


async def test_asking_for_json_gets_a_page_and_for_a_stream_a_stream(small: Live) -> None:
    job_id = await small.job()
    response = await small.client.get(events(job_id), headers={"Accept": "application/json"})
    assert response.headers["content-type"] == "application/json"
    async with small.client.stream("GET", events(job_id), headers={"Accept": "text/event-stream"}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")


NASTY = ["a\nb", "a\r\nb", "\r", "\n\nevent: done\ndata: {}\n\n", "\u2028", "\u2029", "\x85", "id: 9-9", "", "\u00e9"]


async def test_no_field_of_an_event_can_break_a_frame(live: Live) -> None:
    for text in NASTY:
        job = await live.running()
        quoted_key, spread = json.dumps({"x": text}), '{"x":\r\n' + json.dumps(text, ensure_ascii=False) + "\n}"
        for data in (quoted_key, spread, json.dumps({"x": text}, ensure_ascii=False)):
            await live.note(job, data, type=text or "log", step=text)
        await live.done(job)
        raw = (await live.client.get(events(job.job_id))).content
        lines = raw.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n")
        assert lines == [*raw.decode().splitlines(), ""]  # nor for a client that knows more ends of lines
        assert {line.split(": ")[0] for line in lines if line} == {"retry", "event", "data", "id"}
        events_read = [json.loads(line[6:]) for line in lines if line.startswith("data: ")][1:]
        assert [event["seq"] for event in events_read] == list(range(1, 7))
        for event in events_read[2:5]:
            assert (event["type"], event["step"], event["data"]) == (text or "log", text, {"x": text})
        types_read = [line[7:] for line in lines if line.startswith("event: ")]
        assert types_read == [
            "hello",
            "queued",
            "running",
            *[text if text in {"id: 9-9", "\u00e9"} else types_read[3]] * 3,
            "done",
        ]


@pytest.mark.parametrize("data", ["", "no json", "NaN", '{"a":NaN}', '"\\ud800"', '{"a":\n"\\ud800"}', "[" * 5000])
def test_data_of_a_foreign_worker_is_always_one_line_of_json(data: str) -> None:
    event = Event("j", 1, 1, "log", "", 0.0, data)
    line = sse.body_of(event)
    line.encode()
    assert len(line.splitlines()) == 1
    value = json.loads(line, parse_constant=pytest.fail)
    assert value["data"] in ({"_raw": data}, "\ud800", {"a": "\ud800"})


@pytest.mark.parametrize("result", ['"\\ud800"', "NaN", "[" * 950 + "]" * 950, '{"a":"\u2028"}'])
async def test_a_result_of_a_foreign_worker_can_be_read(live: Live, result: str) -> None:
    job = await live.running()
    await live.done(job, result)
    response = await live.client.get(f"/v1/jobs/{job.job_id}")
    assert response.status_code == 200
    assert (await live.client.get("/v1/jobs")).json()["jobs"] == [response.json()]
    hello, *rest = await read(live, events(job.job_id))
    assert hello.data["job"]["result"] == response.json()["result"]
    assert rest[-1].event == "done"


async def test_a_quiet_stream_is_kept_awake(small: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "PING_S", 0.01)
    job_id = await small.job()
    pings = 0
    async with small.client.stream("GET", events(job_id)) as answer:
        async for line in answer.aiter_lines():
            pings += line == ": ping"
            if pings == 5:
                break


@pytest.mark.parametrize("busy", [False, True])
async def test_a_stream_is_rotated_and_goes_on(small: Live, monkeypatch: pytest.MonkeyPatch, *, busy: bool) -> None:
    monkeypatch.setattr(sse, "ROTATE_S", (0.1, 0.1))
    job = await small.running()
    stop = asyncio.Event()

    async def write() -> None:
        while busy and not stop.is_set():
            await small.note(job, "1")

    writer = asyncio.create_task(write())
    async with asyncio.timeout(60):
        first = await read(small, events(job.job_id))
        stop.set()
        await writer
        again = await read(small, events(job.job_id), first[-1].id)
    seqs = [frame.data["seq"] for frame in first[1:] + again[1:]]
    assert seqs == list(range(1, len(seqs) + 1))


async def test_a_listening_socket_lets_connections_notice_that_the_peer_is_gone(small: Live) -> None:
    sock = small.server._sockets[0]
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    job_id = await small.job()
    async with small.client.stream("GET", events(job_id)):
        (connection, *_) = small.server.server_state.connections
        accepted = connection.transport.get_extra_info("socket")
        idle, every, user = socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_USER_TIMEOUT
        socket_options = [accepted.getsockopt(socket.IPPROTO_TCP, option) for option in (idle, every, user)]
    assert socket_options == [10, 5, 20_000]
