"""chat against a real server: streamed events, failures, and their messages."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import httpx2
import pytest

from callsheet import Callsheet, JobCanceled
from callsheet.kernel.job import Status
from callsheet.llm import chat as chat_module
from callsheet.llm import post
from callsheet.llm.settings import chat_endpoint

from .conftest import enqueued, error_of, events_of, run, working
from .server import USAGE, Server, begin, event, piece, refuse, say, send, stream, text_of

KEY = "sk-very-secret-1234"


async def test_an_answer_streams_as_events_and_ends_as_a_result(app: Callsheet, server: Server) -> None:
    job = await run(app, "chat", prompt="What did the cat do?")
    assert await job.result() == {
        "text": "The cat sat down.",
        "model": "tiny",
        "usage": USAGE,
        "finish_reason": "stop",
    }
    job_events = await events_of(app, job)
    assert text_of(job_events) == "The cat sat down."
    assert [e.type for e in job_events][:3] == ["queued", "running", "token"]
    assert json.loads(job_events[2].data) == {"text": "The "}, "the first piece goes out at once"
    assert server.chats[0]["messages"] == [{"role": "user", "content": "What did the cat do?"}]
    assert server.chats[0]["stream"] is True


async def test_the_payload_reaches_the_server(app: Callsheet, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLSHEET_LLM_API_KEY", KEY)
    monkeypatch.setenv("CALLSHEET_LLM_MODEL", "from-settings")
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    options = {"seed": 7, "stream": False, "stream_options": None}
    job = await run(
        app, "chat", messages=messages, system="be brief", temperature=0.5, max_tokens=9, stop=["x"], options=options
    )
    assert (await job.get()).status is Status.SUCCEEDED
    assert server.chats[0] == {
        "model": "from-settings",
        "messages": [{"role": "system", "content": "be brief"}, *messages],
        "temperature": 0.5,
        "max_tokens": 9,
        "stop": ["x"],
        "seed": 7,
        "stream": True,
    }
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    await run(app, "chat", prompt="x", model="from-payload")
    assert server.chats[1]["model"] == "from-payload"


async def test_tokens_are_grouped_to_twenty_events_a_second(app: Callsheet, server: Server) -> None:
    server.turns = [say(*(f"{n} " for n in range(300)), pause_s=0.002)]
    start = time.monotonic()
    job = await run(app, "chat", prompt="count")
    took_s = time.monotonic() - start
    job_events = await events_of(app, job)
    tokens = [e for e in job_events if e.type == "token"]
    assert text_of(job_events) == "".join(f"{n} " for n in range(300))
    assert 3 <= len(tokens) <= 20 * took_s + 3


async def test_a_piece_does_not_wait_for_the_next_one(app: Callsheet, server: Server) -> None:
    server.turns = [stream(piece("one "), piece("two "), hang=True)]
    job = await enqueued(app, "chat", prompt="x")
    async with working(app), asyncio.timeout(60):
        while text_of(await events_of(app, job)) != "one two ":
            await asyncio.sleep(0.02)


async def test_cancelling_closes_the_connection_at_once(app: Callsheet, server: Server) -> None:
    server.turns = [stream(piece("one "), hang=True)]
    job = await enqueued(app, "chat", prompt="x")
    async with working(app):
        await asyncio.wait_for(server.streaming.wait(), 60)
        assert not server.hung_up.is_set()
        await job.cancel("enough")
        await asyncio.wait_for(server.hung_up.wait(), 60)
        with pytest.raises(JobCanceled, match="enough"):
            await job.result(timeout=60)
    assert server.connections == 1


async def test_a_stream_that_breaks_off_is_tried_again_and_its_tokens_are_void(app: Callsheet, server: Server) -> None:
    server.turns = [stream(piece("lost "), whole=False), say("all ", "of ", "it")]
    job = await enqueued(app, "chat", prompt="x")
    async with working(app):
        assert (await job.result(timeout=60))["text"] == "all of it"
    job_events = await events_of(app, job)
    types = [e.type for e in job_events]
    assert types.index("token") < types.index("retrying") < types.index("restart")
    assert types[types.index("restart") + 1] == "token"
    assert text_of(job_events) == "all of it"
    assert "llm_cut_off" in job_events[types.index("retrying")].data


@pytest.mark.parametrize("ending", [stream(piece("half")), stream(piece("half"), b"data: {")], ids=["end", "mid-event"])
async def test_a_stream_that_ends_without_its_last_event_is_cut_off_or_garbled(
    app: Callsheet, server: Server, ending: Any
) -> None:
    server.turns = [ending]
    job = await run(app, "chat", prompt="x")
    assert (await error_of(job))["code"] in ("retry", "llm_garbled")
    assert (await job.get()).status is not Status.SUCCEEDED


async def test_a_server_that_falls_silent_is_given_up(
    app: Callsheet, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(post, "CHUNK_S", 0.3)
    server.turns = [stream(piece("one "), hang=True)]
    job = await run(app, "chat", prompt="x")
    assert "sent nothing for 0.3 s" in (await error_of(job))["message"]
    assert (await job.get()).status is Status.QUEUED
    assert server.hung_up.is_set()


@pytest.mark.parametrize("status", ["500 Oh", "507 Full", "408 Slow"])
async def test_a_server_that_breaks_over_a_request_is_asked_again(app: Callsheet, server: Server, status: str) -> None:
    server.turns = [refuse(status, {"error": {"message": "not now"}}), say()]
    job = await run(app, "chat", prompt="x")
    waiting = await job.get()
    assert (waiting.status, waiting.attempt_count) == (Status.QUEUED, 1)
    assert f"{status[:3]}: not now" in (await error_of(job))["message"]
    async with working(app):
        assert (await job.result(timeout=60))["text"] == "The cat sat down."


@pytest.mark.parametrize("status", ["429 Too Many Requests", "502 Bad Gateway", "503 Busy", "504 Slow"])
async def test_a_server_that_is_away_is_waited_for_at_no_cost(app: Callsheet, server: Server, status: str) -> None:
    server.turns = [*[refuse(status, {"error": {"message": "not now"}})] * 2, say()]
    job = await run(app, "chat", prompt="x")
    waiting = await job.get()
    assert (waiting.status, waiting.attempt_count) == (Status.QUEUED, 0)
    error = await error_of(job)
    assert f"waiting for the model server: the model's server answered {status[:3]}: not now" in error["message"]
    async with working(app):
        assert (await job.result(timeout=60))["text"] == "The cat sat down."
    assert (await job.get()).attempt_count == 1
    types = [e.type for e in await events_of(app, job)]
    assert (types.count("waiting"), types.count("retrying")) == (2, 0)


@pytest.mark.parametrize("code", [429, 503])
async def test_an_outage_in_the_middle_of_a_stream_is_waited_for_and_its_tokens_are_void(
    app: Callsheet, server: Server, code: int
) -> None:
    server.turns = [stream(piece("lost "), event({"error": {"code": code, "message": "too much"}})), say("all")]
    job = await enqueued(app, "chat", prompt="x")
    async with working(app):
        assert (await job.result(timeout=60))["text"] == "all"
    job_events = await events_of(app, job)
    types = [e.type for e in job_events]
    assert types.index("token") < types.index("waiting") < types.index("restart")
    assert text_of(job_events) == "all"
    assert (await job.get()).attempt_count == 1


async def test_retry_after_is_respected(app: Callsheet, server: Server) -> None:
    server.turns = [refuse("429 Too Many Requests", Retry_After="120")]
    job = await run(app, "chat", prompt="x")
    waiting = await job.get()
    assert waiting.attempt_count == 0
    assert 110_000 < waiting.run_at - waiting.updated_at <= 121_000


async def test_a_refused_request_fails_with_the_servers_reason_and_without_the_key(
    app: Callsheet, server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    monkeypatch.setenv("CALLSHEET_LLM_API_KEY", KEY)
    reason = f"Incorrect API key provided: {KEY}. " + "See the manual. " * 200
    server.turns = [refuse("401 Unauthorized", {"error": {"message": reason}})]
    job = await run(app, "chat", prompt="x")
    assert (await job.get()).status is Status.FAILED
    error = await error_of(job)
    assert error["code"] == "llm_refused"
    assert "401: Incorrect API key provided: ***" in error["message"]
    assert len(error["message"]) < 700
    everything = json.dumps([e.data for e in await events_of(app, job)]) + str(await job.get()) + caplog.text
    assert KEY not in everything
    assert server.connections == 1


@pytest.mark.parametrize(
    ("garbage", "message"),
    [
        (b"<html>a login page</html>\n\n", "no event"),
        (event(b"{not json}"), "no JSON"),
        (event([1, 2]), "no JSON object"),
        (event({"choices": "none"}), "cannot be read"),
        (event({"choices": [{"delta": {"content": 5}}]}), "no text"),
        (b"data: \xff\xfe\n\n", "UTF-8"),
    ],
)
async def test_garbage_is_told_as_such(app: Callsheet, server: Server, garbage: bytes, message: str) -> None:
    server.turns = [stream(garbage)]
    job = await run(app, "chat", prompt="x")
    error = await error_of(job)
    assert (error["code"], (await job.get()).status) == ("llm_garbled", Status.FAILED)
    assert message in error["message"]


@pytest.mark.parametrize(("code", "status"), [(400, Status.FAILED), (500, Status.QUEUED), ([503], Status.QUEUED)])
async def test_an_error_in_the_middle_of_a_stream(app: Callsheet, server: Server, code: Any, status: Status) -> None:
    server.turns = [stream(piece("a"), event({"error": {"code": code, "message": "context is full"}}))]
    job = await run(app, "chat", prompt="x")
    assert "context is full" in (await error_of(job))["message"]
    assert (await job.get()).status is status


async def test_a_redirect_is_not_followed(app: Callsheet, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLSHEET_LLM_API_KEY", KEY)
    async with Server.running() as other:
        server.turns = [refuse("307 Temporary Redirect", Location=f"{other.url}/chat/completions")]
        job = await run(app, "chat", prompt="x")
        assert other.connections == 0
    error = await error_of(job)
    assert error["code"] == "llm_refused"
    assert "redirects are not followed" in error["message"]


async def test_nobody_at_the_address_is_worth_another_attempt(app: Callsheet, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Server.running() as server:
        monkeypatch.setenv("CALLSHEET_LLM_URL", server.url)
    job = await run(app, "chat", prompt="x")
    assert (await job.get()).status is Status.QUEUED
    assert "cannot be reached" in (await error_of(job))["message"]


@pytest.mark.parametrize("value", ["\ud83d", float("nan")])
async def test_a_body_that_cannot_be_written_is_no_outage(server: Server, value: object) -> None:
    with pytest.raises(ValueError, match=r"surrogates|JSON"):
        async with post.open_post(chat_endpoint(), "chat/completions", {"a": value}):
            pass


@pytest.mark.parametrize("task", ["chat", "plan", "code"])
async def test_without_an_endpoint_the_variable_to_set_is_named(app: Callsheet, task: str) -> None:
    job = await run(app, task, prompt="x")
    error = await error_of(job)
    assert ((await job.get()).status, error["code"]) == (Status.FAILED, "llm_not_configured")
    assert "CALLSHEET_LLM_URL" in error["message"]


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("LLM_URL", "jetson:8080/v1"),
        ("LLM_URL", f"http://me:{KEY}@host/v1"),
        ("LLM_URL", "http://[oops"),
        ("LLM_API_KEY", f"{KEY}\nx"),
    ],
)
async def test_a_setting_that_cannot_be_right_is_named_and_not_shown(
    app: Callsheet, server: Server, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(f"CALLSHEET_{variable}", value)
    error = await error_of(await run(app, "chat", prompt="x"))
    assert error["code"] == "llm_not_configured"
    assert f"CALLSHEET_{variable}" in error["message"]
    assert KEY not in str(error)


async def test_an_answer_without_end_is_stopped(
    app: Callsheet, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_module, "ANSWER_CHARS", 50)

    async def endless(_: Server, __: Any, writer: asyncio.StreamWriter) -> None:
        await begin(writer)
        while True:
            await send(writer, piece("again and "))

    server.turns = [endless]
    error = await error_of(await run(app, "chat", prompt="x"))
    assert error["code"] == "llm_answer_too_long"
    await asyncio.wait_for(server.hung_up.wait(), 60)


async def test_pieces_are_whole_however_the_bytes_are_cut(app: Callsheet, server: Server) -> None:
    words = 'Grüße \u2028 "日本" 🎬'
    data = json.dumps({"choices": [{"delta": {"content": words}}]}, ensure_ascii=False).encode()
    whole = b": comment\r\nevent: x\r\ndata: " + data + b"\r\n\r\n" + piece(finish="stop")
    server.turns = [stream(*(whole[i : i + 3] for i in range(0, len(whole), 3)))]
    job = await run(app, "chat", prompt="x")
    assert (await job.result())["text"] == words


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({}, "either prompt or messages"),
        ({"prompt": "a", "messages": [{"role": "user"}]}, "either prompt or messages"),
        ({"messages": []}, "there must be one"),
        ({"messages": [{"content": "x"}]}, "needs a role"),
    ],
)
async def test_a_payload_that_asks_nothing_is_refused(
    app: Callsheet, server: Server, payload: dict[str, Any], message: str
) -> None:
    job = await run(app, "chat", **payload)
    error = await error_of(job)
    assert error["code"] == "invalid_payload"
    assert message in error["message"]
    assert server.connections == 0


async def test_all_jobs_of_a_process_share_one_client(
    app: Callsheet, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients: list[httpx2.AsyncClient] = []
    make = httpx2.AsyncClient.__init__

    def count(client: httpx2.AsyncClient, *args: Any, **options: Any) -> None:
        clients.append(client)
        make(client, *args, **options)

    monkeypatch.setattr(httpx2.AsyncClient, "__init__", count)
    for _ in range(3):
        assert (await (await run(app, "chat", prompt="x")).result())["finish_reason"] == "stop"
        assert (await (await run(app, "embed", input="x")).result())["model"]
    assert len(server.requests) == 6
    assert len(clients) == 1, "to make one takes 20 ms"


async def test_a_cookie_of_one_job_is_not_sent_by_another(app: Callsheet, server: Server) -> None:
    server.turns = [refuse("400 Bad Request", Set_Cookie="session=of-one-tenant; Path=/"), say()]
    await run(app, "chat", requester="one", prompt="x")
    assert (await (await run(app, "chat", requester="two", prompt="x")).result())["finish_reason"] == "stop"
    assert ["cookie" in request.headers for request in server.requests] == [False, False]
