"""Answers that the real server gives rarely or never: silence, hints, odd types, other people's proxies."""

from __future__ import annotations

import asyncio
import json
import random

import pytest

from callsheet.client import (
    Client,
    Conflict,
    EventTooLarge,
    NotFound,
    Patience,
    ServerBusy,
    ServerFailed,
    ServerUnreachable,
    TooManyRequests,
    Unauthorized,
    UnexpectedAnswer,
)
from callsheet.client import patience as patience_module
from callsheet.client.patience import Pauses
from tests.client.conftest import QUICK
from tests.client.scripted import CUT, JSON, SILENCE, STREAM, Answer, event, job, problem, scripted, stream, told
from tests.running_worker import until

RECEIPT = told(job("queued"), 202)


async def types(client: Client, after: str | None = None) -> list[str]:
    return [event.type async for event in client.events("j", after)]


async def test_a_repeated_event_is_dropped_and_the_last_id_sent_back() -> None:
    first = stream(event(1, "queued"), event(2), b": ping\n\n")
    second = stream(event(1, "queued"), event(2), event(3), event(4, "done"))
    async with scripted(first, second) as server, Client(server.url, patience=QUICK) as client:
        assert [found.seq async for found in client.events("j")] == [1, 2, 3, 4]
    assert [request.headers.get("last-event-id") for request in server.asked] == [None, "1000-2"]
    assert server.asked[0].headers["accept"] == "text/event-stream"


async def test_of_many_jobs_a_repeated_event_is_dropped_too() -> None:
    first = stream(event(1), event(2))
    second = stream(event(1), event(2), event(3, "done"))
    async with scripted(first, second) as server, Client(server.url, patience=QUICK) as client:
        assert [found.seq async for found in client.events_of("j")] == [1, 2, 3]
    assert [request.headers.get("last-event-id") for request in server.asked] == [None, "1000-2"]
    assert server.asked[0].path == "/v1/events?jobs=j"


async def test_of_many_jobs_a_reset_tells_of_each() -> None:
    anew = {"jobs": [job("running", 7), {**job("done", 9), "job_id": "k"}]}
    frames = (f"id: c2\nevent: reset\ndata: {json.dumps(anew)}\n\n".encode(), event(8, "done"))
    async with scripted(stream(event(1)), stream(*frames)) as server, Client(server.url, patience=QUICK) as client:
        seen = [(found.job_id, found.type, found.seq) async for found in client.events_of("j", "k")]
    assert seen == [("j", "token", 1), ("j", "reset", 7), ("k", "reset", 9), ("j", "done", 8)]


async def test_half_an_event_does_not_count() -> None:
    half = event(2)[:-1]
    async with (
        scripted(stream(event(1), half), stream(event(2), event(3, "done"))) as server,
        Client(server.url, patience=QUICK) as client,
    ):
        assert [found.seq async for found in client.events("j")] == [1, 2, 3]
    assert server.asked[1].headers["last-event-id"] == "1000-1"


async def test_204_ends_a_stream() -> None:
    async with scripted(stream(event(1)), Answer(204)) as server, Client(server.url, patience=QUICK) as client:
        assert await types(client) == ["token"]
    assert len(server.asked) == 2


async def test_a_task_may_name_its_events_like_ours() -> None:
    frames = (event(1, "hello"), event(2, "reset"), event(3, "message"), event(4, "done"))
    async with scripted(stream(*frames)) as server, Client(server.url, patience=QUICK) as client:
        assert await types(client) == ["hello", "reset", "message", "done"]


async def test_silence_is_given_up_and_a_ping_is_not_silence() -> None:
    quiet = QUICK._replace(silence_s=0.2)
    async with (
        scripted(stream(event(1), hang=True), stream(event(2, "done"))) as server,
        Client(server.url, patience=quiet) as client,
    ):
        assert [found.seq async for found in client.events("j")] == [1, 2]
    assert server.gone.is_set()
    assert server.asked[1].at - server.asked[0].at >= 0.2
    assert Patience().silence_s == 45.0


async def test_a_server_that_never_answers_is_given_up() -> None:
    quiet = QUICK._replace(silence_s=0.2, answer_s=0.2)
    async with (
        scripted(SILENCE, told(job("done")), SILENCE, stream(event(1, "done"))) as server,
        Client(server.url, patience=quiet) as client,
    ):
        assert (await client.get("j")).status == "done"
        assert await types(client) == ["done"]
    assert len(server.asked) == 4


async def test_the_servers_hint_sets_the_pause_between_connections() -> None:
    patience = QUICK._replace(longest_pause_s=5.0)
    async with (
        scripted(stream(b"retry: 300\n\n", event(1)), stream(event(2, "done"))) as server,
        Client(server.url, patience=patience) as client,
    ):
        assert await types(client) == ["token", "done"]
    assert server.asked[1].at - server.asked[0].at >= 0.3


@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_is_kept_by_streams_and_requests(status: int) -> None:
    busy = problem(status, "busy", Retry_After="1")
    async with (
        scripted(busy, stream(event(1, "done")), busy, told(job("done"))) as server,
        Client(server.url, patience=QUICK) as client,
    ):
        assert await types(client) == ["done"]
        assert (await client.get("j")).status == "done"
    first, second, third, fourth = (request.at for request in server.asked)
    assert second - first >= 1.0
    assert fourth - third >= 1.0


async def test_retry_after_may_be_a_moment_and_one_too_far_is_told() -> None:
    far = problem(503, "shutting_down", Retry_After="Wed, 21 Oct 2099 07:28:00 GMT")
    async with scripted(far) as server, Client(server.url, patience=QUICK) as client:
        with pytest.raises(ServerBusy) as excinfo:
            await client.get("j")
        assert excinfo.value.retry_after_s is not None
        assert excinfo.value.retry_after_s > 1e9
        with pytest.raises(ServerBusy):
            await types(client)
    assert len(server.asked) == 2


class Clock:
    """Replaces `time` and `asyncio` in modules with pauses: they cost no time, and are noted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slept: list[float] = []
        monkeypatch.setattr(patience_module, "time", self)
        monkeypatch.setattr(patience_module, "asyncio", self)
        monkeypatch.setattr(random, "uniform", lambda low, high: high)

    def monotonic(self) -> float:
        return sum(self.slept)

    async def sleep(self, pause_s: float) -> None:
        self.slept.append(pause_s)
        await asyncio.sleep(0)


async def test_pauses_grow_until_patience_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    patience = Patience(first_pause_s=0.01, longest_pause_s=0.05, retry_for_s=0.5, reconnect_for_s=0.5)
    async with scripted(CUT) as server, Client(server.url, patience=patience) as client:
        with pytest.raises(ServerUnreachable, match=server.url):
            await client.get("j")
        pauses, before = [0.01, 0.02, 0.04, *[0.05] * 8], len(server.asked)
        assert (clock.slept, before) == (pauses, 12)
        with pytest.raises(ServerUnreachable):
            await types(client)
        assert (clock.slept[11:], len(server.asked) - before) == (pauses, 12)


async def test_pauses_double_up_to_the_longest_and_begin_anew_after_use(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(pause_s: float) -> None:
        slept.append(pause_s)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(random, "uniform", lambda low, high: high)
    pauses = Pauses(Patience(first_pause_s=1.0, longest_pause_s=10.0), 100.0)
    for _ in range(5):
        await pauses.after(ServerUnreachable("gone"))
    pauses.moved_on()
    await pauses.after(ServerUnreachable("gone"))
    pauses.hint_s = 3.0
    await pauses.after(ServerUnreachable("gone"))
    assert slept == [1.0, 2.0, 4.0, 8.0, 10.0, 1.0, 5.0]


async def test_a_server_that_only_greets_is_not_asked_without_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, patience = Clock(monkeypatch), Patience(first_pause_s=1.0, longest_pause_s=3600.0, reconnect_for_s=7200.0)
    hello = b'event: hello\ndata: {"job": {}}\n\n'
    async with scripted(stream(hello)) as server, Client(server.url, patience=patience) as client:
        asking = asyncio.create_task(types(client))
        await until(lambda: len(clock.slept) >= 8)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    assert clock.slept[:8] == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0]
    assert len(server.asked) <= len(clock.slept) + 1


async def test_a_new_job_is_asked_for_again_with_the_same_key() -> None:
    busy = problem(502, "bad_gateway")
    async with scripted(CUT, busy, RECEIPT) as server, Client(server.url, patience=QUICK) as client:
        assert (await client.create("chat", {"prompt": "hi"})).job_id == "j"
    keys = {request.headers["idempotency-key"] for request in server.asked}
    assert (len(server.asked), len(keys), len({request.body for request in server.asked})) == (3, 1, 1)


async def test_a_request_that_is_still_at_work_is_asked_again() -> None:
    busy = problem(409, "in_progress", Retry_After="0")
    async with (
        scripted(busy, RECEIPT, problem(409, "in_progress")) as server,
        Client(server.url, patience=QUICK) as client,
    ):
        assert (await client.create("chat", {})).job_id == "j"
        with pytest.raises(Conflict):
            await client.create("chat", {})
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Answer(500, JSON, b"<html>"), ServerFailed),
        (Answer(404, {}, b"nginx"), NotFound),
        (Answer(302, {"Location": "http://127.0.0.1:1/"}), UnexpectedAnswer),
        (Answer(200, JSON, b"<html>"), UnexpectedAnswer),
        (told([]), UnexpectedAnswer),
        (told({"job_id": "j"}), UnexpectedAnswer),
    ],
)
async def test_what_is_no_answer_of_ours_is_told_at_once(answer: Answer, error: type[Exception]) -> None:
    async with scripted(answer) as server, Client(server.url, patience=QUICK) as client:
        with pytest.raises(error):
            await client.get("j")
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Answer(200, {"Content-Type": "text/html"}, b"<html>"), UnexpectedAnswer),
        (Answer(200, STREAM, b"event: x\ndata: {\n\n"), UnexpectedAnswer),
        (Answer(200, STREAM, b"event: x\ndata: []\n\n"), UnexpectedAnswer),
        (Answer(200, STREAM, b'event: x\ndata: {"seq": "x"}\n\n'), UnexpectedAnswer),
        (Answer(200, STREAM, b'event: reset\ndata: {"job": 1}\n\n'), UnexpectedAnswer),
        (Answer(200, STREAM, b"data: " + b"x" * (1 << 20) + b"\n\n"), EventTooLarge),
        (problem(401, "unauthorized"), Unauthorized),
        (problem(404, "not_found"), NotFound),
        (problem(429, "too_many_streams", Retry_After="3600"), TooManyRequests),
    ],
)
async def test_a_stream_that_is_none_is_told_at_once(answer: Answer, error: type[Exception]) -> None:
    async with scripted(answer) as server, Client(server.url, patience=QUICK) as client:
        with pytest.raises(error):
            await types(client)
    assert len(server.asked) == 1


async def test_a_foreign_workers_data_may_be_anything() -> None:
    odd = event(1).replace(b'"data": {}', b'"data": [1]')
    async with scripted(stream(odd, event(2, "done"))) as server, Client(server.url, patience=QUICK) as client:
        assert [found.data async for found in client.events("j")] == [{"_raw": [1]}, {}]


async def test_a_job_that_was_brought_back_is_waited_for_again() -> None:
    async with (
        scripted(
            told(job("running", 1)),
            stream(event(2, "error")),
            told(job("queued", 3)),
            stream(event(4, "done")),
            told(job("done", 4, result=7)),
        ) as server,
        Client(server.url, patience=QUICK) as client,
    ):
        assert await client.wait("j") == 7
    assert [request.headers.get("last-event-id") for request in server.asked] == [None, "1000-1", None, "1000-3", None]
