"""client.js and answers that the real server gives rarely or never; client.js and the Python client parse alike."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callsheet.client import EventTooLarge
from callsheet.net.sse import Parser
from tests.browser_client.node import Node, driven
from tests.client.scripted import CUT, JSON, SILENCE, STREAM, Answer, event, job, problem, scripted, stream, told
from tests.client.test_sse import cut, parsed, streams

RECEIPT = told(job("queued"), 202)


async def test_a_repeated_event_is_dropped_and_half_an_event_does_not_count() -> None:
    answers = (
        stream(event(1), event(2), event(3)[:-1]),
        stream(event(1), event(2), event(3), event(4, "reset"), event(5, "done")),
    )
    async with scripted(*answers) as server, driven(server.url) as node:
        outcome = await node.ask("watch", job="j")
    assert [found["seq"] for found in outcome.events] == [1, 2, 3, 4, 5]
    assert [request.headers.get("last-event-id") for request in server.asked] == [None, "1000-2"]


async def test_of_many_jobs_a_repeated_event_is_dropped_and_a_reset_tells_of_each() -> None:
    anew = {"jobs": [job("running", 7), {**job("done", 9), "job_id": "k"}]}
    answers = (
        stream(event(1), event(2)),
        stream(event(1), event(2), event(3)),
        stream(f"id: c2\nevent: reset\ndata: {json.dumps(anew)}\n\n".encode(), event(8, "done")),
    )
    async with scripted(*answers) as server, driven(server.url) as node:
        outcome = await node.ask("many", jobs=["j", "k"])
    assert [(found["job_id"], found["seq"]) for found in outcome.events] == [
        *(("j", seq) for seq in (1, 2, 3, 7)),
        ("k", 9),
        ("j", 8),
    ]
    assert [request.headers.get("last-event-id") for request in server.asked] == [None, "1000-2", "1000-3"]


async def test_silence_is_given_up() -> None:
    async with (
        scripted(stream(event(1), hang=True), stream(event(1), event(2, "done"))) as server,
        driven(server.url, silenceMs=200) as node,
    ):
        assert (await node.ask("watch", job="j")).types == ["token", "done"]  # a slow machine may miss the first one
    assert server.asked[1].at - server.asked[0].at >= 0.19


async def test_a_server_that_never_answers_is_given_up() -> None:
    async with (
        scripted(SILENCE, told(job("done")), SILENCE, stream(event(1, "done"))) as server,
        driven(server.url, silenceMs=200, answerMs=200) as node,
    ):
        assert (await node.ask("get", job="j")).result["status"] == "done"
        assert (await node.ask("watch", job="j")).types == ["done"]
    assert len(server.asked) == 4


async def test_the_servers_hint_sets_the_pause_between_connections() -> None:
    async with (
        scripted(stream(b"retry: 300\n\n", event(1)), stream(event(2, "done"))) as server,
        driven(server.url, longestPauseMs=5000) as node,
    ):
        assert (await node.ask("watch", job="j")).types == ["token", "done"]
    assert server.asked[1].at - server.asked[0].at >= 0.29


async def test_retry_after_is_kept_by_streams_and_requests() -> None:
    busy = problem(503, "shutting_down", Retry_After="1")
    async with (
        scripted(busy, stream(event(1, "done")), busy, told(job("done"))) as server,
        driven(server.url) as node,
    ):
        assert (await node.ask("watch", job="j")).types == ["done"]
        assert (await node.ask("get", job="j")).result["status"] == "done"
    first, second, third, fourth = (request.at for request in server.asked)
    assert second - first >= 0.99
    assert fourth - third >= 0.99


async def test_a_new_job_is_asked_for_again_with_the_same_key() -> None:
    async with scripted(CUT, problem(502, "bad_gateway"), RECEIPT) as server, driven(server.url) as node:
        assert (await node.ask("create", task="chat", payload={})).result["job_id"] == "j"
    keys = {request.headers["idempotency-key"] for request in server.asked}
    assert (len(server.asked), len(keys), len(keys.pop())) == (3, 1, 32)


async def test_patience_ends() -> None:
    async with scripted(CUT) as server, driven(server.url, retryForMs=300, reconnectForMs=300) as node:
        for verb in ("get", "watch"):
            error = (await node.ask(verb, job="j")).error
            assert error is not None
            assert error["code"] == "unreachable"
    assert len(server.asked) > 3


@pytest.mark.parametrize(
    ("verb", "answer", "code"),
    [
        ("get", Answer(200, JSON, b"<html>"), "unexpected_answer"),
        ("get", Answer(500, JSON, b"<html>"), "http_500"),
        ("watch", Answer(200, {"Content-Type": "text/html"}, b"<html>"), "unexpected_answer"),
        ("watch", Answer(200, STREAM, b"data: {\n\n"), "unexpected_answer"),
        ("watch", Answer(200, STREAM, b"data: " + b"x" * (1 << 20) + b"\n\n"), "event_too_large"),
        ("watch", problem(401, "unauthorized"), "unauthorized"),
        ("watch", problem(429, "too_many_streams", Retry_After="3600"), "too_many_streams"),
    ],
)
async def test_what_is_no_answer_of_ours_is_told_at_once(verb: str, answer: Answer, code: str) -> None:
    async with scripted(answer) as server, driven(server.url) as node:
        error = (await node.ask(verb, job="j")).error
    assert error is not None
    assert error["code"] == code
    assert len(server.asked) == 1


async def agrees(node: Node, chunks: list[bytes]) -> None:
    """Assert that both parsers return equal events."""
    read = (await node.ask("parse", chunks=[base64.b64encode(chunk).decode() for chunk in chunks])).result
    parser = Parser(EventTooLarge)
    frames = [list(frame) for chunk in chunks for frame in parser.feed(chunk)]
    assert (read["frames"], read["retry"] or None) == (frames, parser.retry_ms)


async def test_the_parser_reads_what_the_other_client_reads() -> None:
    cases: list[tuple[bytes, list[int]]] = []

    @settings(max_examples=300, database=None)
    @given(streams, st.lists(st.integers(min_value=0, max_value=1 << 16)))
    def collect(text: bytes, places: list[int]) -> None:
        cases.append((text, places))

    collect()
    async with driven("http://127.0.0.1:9") as node:
        for text, places in cases:
            await agrees(node, cut(text, places))
    assert sum(bool(parsed(text)) for text, _ in cases) > 10
