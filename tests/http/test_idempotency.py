"""The Idempotency-Key header: one job for one key, whoever asks how often, and the same answer each time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import string
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from starlette.requests import Request

from callsheet.http import idempotency
from callsheet.http.problems import Problem
from tests.http.live import Live, problem, serving
from tests.http.raw import exchange, head, parts_of

JOB: dict[str, Any] = {"task": "chat", "payload": {"n": 1}}
VISIBLE = "".join(map(chr, range(33, 127)))


def request_with(*values: str) -> Request:
    headers = [(b"idempotency-key", value.encode("latin-1")) for value in values]
    return Request({"type": "http", "method": "POST", "path": "/v1/jobs", "query_string": b"", "headers": headers})


def key_of(*values: str) -> str | None:
    return idempotency.key_of(request_with(*values))


async def post(live: Live, key: str, **fields: Any) -> Any:
    return await live.client.post("/v1/jobs", json={**JOB, **fields}, headers={"Idempotency-Key": key})


async def test_two_hundred_at_once_on_two_servers_make_one_job(url: str) -> None:
    async with serving(url) as one, serving(url) as two:
        answers = await asyncio.gather(*(post((one, two)[n % 2], "the-same-here") for n in range(200)))
        assert {answer.status_code for answer in answers} == {202}
        assert len({answer.content for answer in answers}) == 1
        assert len({answer.headers["location"] for answer in answers}) == 1
        assert [answer.headers.get("idempotency-replayed") for answer in answers].count(None) == 1
        listing = (await one.client.get("/v1/jobs?limit=200")).json()["jobs"]
        assert [job["job_id"] for job in listing].count(answers[0].json()["job_id"]) == 1
        if "postgres" not in url:  # that database has jobs of other tests
            assert len(listing) == 1


async def test_two_bodies_with_one_key_at_once_make_one_job(live: Live) -> None:
    answers = await asyncio.gather(*(post(live, "k", payload={"n": n % 2}) for n in range(40)))
    assert sorted({answer.status_code for answer in answers}) == [202, 409]
    assert len({answer.content for answer in answers if answer.status_code == 202}) == 1
    assert len((await live.client.get("/v1/jobs")).json()["jobs"]) == 1


async def test_a_replay_is_the_first_answer_after_the_job_has_ended(live: Live) -> None:
    first = await post(live, "k", ttl_s=60)
    assert "idempotency-replayed" not in first.headers
    await live.client.post(f"/v1/jobs/{first.json()['job_id']}/cancel")
    again = await post(live, "k", ttl_s=60)
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert again.headers["idempotency-replayed"] == "true"
    assert again.headers["location"] == first.headers["location"]
    record = await live.engine.store.idempotency_record("", "k")
    assert record is not None
    assert record.expires_at - await live.engine.store.now() > 71 * 3600 * 1000


@pytest.mark.parametrize("other", [{"payload": {"n": 2}}, {"task": "plan"}, {"ttl_s": 5}, {"payload": {"n": 1.0}}])
async def test_another_request_with_the_same_key_is_refused(live: Live, other: dict[str, Any]) -> None:
    first = await post(live, "k")
    problem(await post(live, "k", **other), 409, "idempotency_conflict")
    assert (await post(live, "k")).content == first.content


async def test_the_same_request_may_be_written_otherwise(small: Live) -> None:
    first = await post(small, "k", payload={"a": 1, "b": "\u00e9"})
    text = ' { "payload" : {"b":"\\u00e9", "a":1},\n "task":"chat" } '
    headers = {"Idempotency-Key": "k", "Content-Type": "application/vnd.x+json"}
    assert (await small.client.post("/v1/jobs", content=text, headers=headers)).content == first.content
    problem(await small.client.post("/v1/jobs?x=1", content=text, headers=headers), 409, "idempotency_conflict")


async def test_a_request_that_was_refused_leaves_its_key_free(live: Live) -> None:
    for body in ({"task": "sing", "payload": {}}, {"task": "chat", "payload": {"a": "x" * 210_000}}):
        refusal = await live.client.post("/v1/jobs", json=body, headers={"Idempotency-Key": "k"})
        assert refusal.status_code in {413, 422}
    async with live.bare() as nobody:
        assert (await nobody.post("/v1/jobs", json=JOB, headers={"Idempotency-Key": "k"})).status_code == 401
    assert await live.engine.store.idempotency_record("", "k") is None
    assert "idempotency-replayed" not in (await post(live, "k")).headers


async def test_a_quoted_key_is_the_bare_one(live: Live) -> None:
    first = await post(live, "abc-123")
    assert (await post(live, '"abc-123"')).content == first.content
    assert (await post(live, "ABC-123")).content != first.content


async def test_every_visible_character_may_be_in_a_key(live: Live) -> None:
    for key in ["x", "x" * 255, f'"{"x" * 255}"', VISIBLE, "a,b", "'", "{}", '"a\\"b"']:
        first = await post(live, key)
        assert first.status_code == 202
        assert (await post(live, key)).content == first.content


async def test_a_key_against_the_grammar_is_refused(small: Live) -> None:
    for key in ["", '""', "x" * 256, f'"{"x" * 256}"', "a b", '"a b"', "a\tb", "\u00e9", "\u00a0"]:
        body = json.dumps(JOB).encode()
        lines = (f"Idempotency-Key: {key}", f"Content-Length: {len(body)}", "Content-Type: application/json")
        status, _, response = parts_of(await exchange(small, head(small, "POST /v1/jobs", *lines) + body))
        assert (status, response["code"]) == (400, "bad_request")
        assert (await small.client.get("/v1/jobs")).json()["jobs"] == []


async def test_a_control_character_in_a_key_makes_no_job(small: Live) -> None:
    for control in ["\0", "\x01", "\x0b", "\x1f", "\x7f", "\r", "\n", "\r\n"]:
        body = json.dumps(JOB).encode()
        lines = (f"Content-Length: {len(body)}", f"Idempotency-Key: a{control}b")
        response = await exchange(small, head(small, "POST /v1/jobs", *lines) + body)
        assert response.startswith(b"HTTP/1.1 400")
        assert (await small.client.get("/v1/jobs")).json()["jobs"] == []


async def test_two_keys_in_one_request_are_one_too_many(small: Live) -> None:
    for second in ("a", "b"):
        headers = [("Idempotency-Key", "a"), ("Idempotency-Key", second)]
        problem(await small.client.post("/v1/jobs", json=JOB, headers=headers), 400, "bad_request")
    assert (await small.client.get("/v1/jobs")).json()["jobs"] == []


@given(st.text(st.characters(max_codepoint=255), max_size=300))
@settings(max_examples=500, deadline=None)
def test_a_key_is_visible_ascii_or_refused(text: str) -> None:
    key: str | None = "refused"
    with contextlib.suppress(Problem):
        key = key_of(text)
    assert re.fullmatch(r"[!-~]{1,255}", str(key))


@given(st.text(VISIBLE, min_size=1, max_size=255))
@settings(max_examples=500, deadline=None)
def test_quoting_a_key_does_not_change_it(key: str) -> None:
    quoted_key = key.replace("\\", "\\\\").replace('"', '\\"')
    assert key_of(f'"{quoted_key}"') == key
    if not (len(key) > 1 and key[0] == key[-1] == '"'):
        assert key_of(key) == key


@given(st.text(string.printable, max_size=20), st.text(string.printable, max_size=20))
@settings(max_examples=200, deadline=None)
def test_two_headers_are_refused_whatever_they_hold(one: str, two: str) -> None:
    with pytest.raises(Problem):
        key_of(one, two)


def test_without_the_header_there_is_no_key() -> None:
    assert key_of() is None
