"""Valid and invalid request bodies.

Nothing that a client sends brings the server down, grows it, or is taken for something else.
"""

from __future__ import annotations

import gc
import json
from collections.abc import AsyncIterator
from typing import Any

import psutil
import pytest

from callsheet.http import middleware
from callsheet.http.limits import BODY_BYTES
from callsheet.kernel.wire import PAYLOAD_LIMIT_BYTES
from tests.http.live import Live, problem
from tests.http.raw import exchange, flood, head, parts_of
from tests.running_worker import until

MAX_TTL_S = 366 * 86_400
JOB: dict[str, Any] = {"task": "chat", "payload": {}}
JSON = {"Content-Type": "application/json"}
DEEP = 10_000


async def pieces(count: int, size: int = 64 * 1024) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield b" " * size


async def test_a_client_that_is_a_little_over_hears_why(small: Live) -> None:
    for size in (BODY_BYTES + 1, 2 * BODY_BYTES, 4 * BODY_BYTES):
        problem(await small.client.post("/v1/jobs", content=b" " * size, headers=JSON), 413, "body_too_large")
    problem(await small.client.post("/v1/jobs", content=pieces(60), headers=JSON), 413, "body_too_large")


async def test_a_client_that_asks_first_need_not_send_a_body_that_is_too_large(small: Live) -> None:
    line = (f"Content-Length: {BODY_BYTES + 1}", "Expect: 100-continue")
    response = await exchange(small, head(small, "POST /v1/jobs", *line))
    status, headers, body = parts_of(response)
    status, headers, body = parts_of(response)
    assert (status, body["code"], headers["connection"]) == (413, "body_too_large", "close")
    assert (await small.client.get("/healthz")).status_code == 200


@pytest.mark.parametrize(
    ("line", "status"), [("POST /v1/jobs", 413), ("GET /v1/jobs", 200), ("POST /nothing", 404), ("GET EVENTS", 200)]
)
async def test_a_body_without_an_end_ends_the_connection(
    small: Live, monkeypatch: pytest.MonkeyPatch, line: str, status: int
) -> None:
    monkeypatch.setattr(middleware, "DRAIN_S", 0.1)
    line = line.replace("EVENTS", f"/v1/jobs/{await small.job()}/events")
    start = head(small, line, "Transfer-Encoding: chunked", "Content-Type: application/json")
    response, sent_count = await flood(small, start, b"10000\r\n" + b" " * 0x10000 + b"\r\n")
    assert response == b"" or response.startswith(f"HTTP/1.1 {status}".encode())  # b"": it was reset before we read
    assert sent_count < 4 * 1024 * 1024 * 1024  # a tenth of a second; a minute would be ten times that
    await until(lambda: not small.state.open)
    assert (await small.client.get("/healthz")).status_code == 200


async def test_a_refused_request_with_a_body_leaves_its_connection_usable(small: Live) -> None:
    open_count = len(small.server.server_state.connections)
    for size in (10, 100_000, 3 * BODY_BYTES):
        answer = await small.client.post("/v1/nothing", content=b"x" * size)
        assert "connection" not in answer.headers
    assert len(small.server.server_state.connections) == max(1, open_count)


async def test_a_length_that_is_none_is_refused(small: Live) -> None:
    for length in ["-1", "x", "1e3", "9" * 30, "0x10", "+5", ""]:
        response = await exchange(small, head(small, "POST /v1/jobs", f"Content-Length: {length}"))
        assert response.startswith((b"HTTP/1.1 400", b"HTTP/1.1 413"))


async def test_two_lengths_or_a_length_beside_chunks_are_no_request(small: Live) -> None:
    for headers in (
        ("Content-Length: 5", "Content-Length: 6"),
        ("Content-Length: 5", "Transfer-Encoding: chunked"),
    ):
        assert (await exchange(small, head(small, "POST /v1/jobs", *headers))).startswith(b"HTTP/1.1 400")


async def test_a_body_without_a_length_is_counted_as_it_comes(small: Live) -> None:
    answer = await small.client.post("/v1/jobs", content=pieces(20), headers=JSON)
    problem(answer, 413, "body_too_large")
    answer = await small.client.post("/v1/jobs", content=pieces(15), headers=JSON)
    problem(answer, 400, "bad_request")


async def test_a_body_without_an_end_costs_no_memory(small: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "DRAIN_S", 0.2)
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    start = head(small, "POST /v1/jobs", "Transfer-Encoding: chunked", "Content-Type: application/json")
    await exchange(small, start, *[chunk] * 20)
    gc.collect()
    before = psutil.Process().memory_info().rss
    for _ in range(4):
        response = await exchange(small, start, *[chunk] * 400)  # 25 MiB
        assert response == b"" or parts_of(response)[0] == 413  # or the connection was reset while we wrote
    gc.collect()
    assert psutil.Process().memory_info().rss - before < 16 * 1024 * 1024
    assert (await small.client.get("/healthz")).status_code == 200


async def test_a_body_that_is_packed_is_refused_unread(small: Live) -> None:
    for coding in ["gzip", "br", "deflate", "zstd", "identity, gzip", "x"]:
        answer = await small.client.post("/v1/jobs", json=JOB, headers={"Content-Encoding": coding})
        problem(answer, 415, "unsupported_encoding")


async def test_a_body_as_it_is_may_say_so(small: Live) -> None:
    assert (await small.client.post("/v1/jobs", json=JOB, headers={"Content-Encoding": "Identity"})).status_code == 202


async def test_a_body_of_another_type_is_refused(small: Live) -> None:
    for kind in ["text/plain", "application/xml", "application/x-www-form-urlencoded", "json", "x"]:
        answer = await small.client.post("/v1/jobs", content=json.dumps(JOB), headers={"Content-Type": kind})
        problem(answer, 415, "unsupported_media_type")


async def test_json_has_many_names(small: Live) -> None:
    for kind in ["application/json", "Application/JSON; charset=utf-8", "application/vnd.x+json"]:
        headers = {"Content-Type": kind}
        assert (await small.client.post("/v1/jobs", content=json.dumps(JOB), headers=headers)).status_code == 202


NO_JSON = {
    "empty": b"",
    "bad utf-8": b'{"task":"chat","payload":{"a":"\xff\xfe"}}',
    "half a character": b'{"task":"chat","payload":{"a":"\\ud800"}}',
    "utf-16": json.dumps(JOB).encode("utf-16"),
    "no json": b"task=chat",
    "half": b'{"task":"chat",',
    "more after": b'{"task":"chat","payload":{}}{}',
    "single quotes": b"{'task':'chat','payload':{}}",
    "a comma too many": b'{"task":"chat","payload":{},}',
    "a raw line's end": b'{"task":"chat","payload":{"a":"\n"}}',
    "deep arrays": b"[" * DEEP,
    "deep arrays in the payload": b'{"task":"chat","payload":{"a":' + b"[" * DEEP + b"]" * DEEP + b"}}",
    "deep objects in the payload": b'{"task":"chat","payload":{"a":' + b'{"a":' * DEEP + b"1" + b"}" * (DEEP + 2),
    "a number of 5,000 digits": b'{"task":"chat","payload":{"a":' + b"9" * 5000 + b"}}",
    "a length of life that is no number": b'{"task":"chat","payload":{},"ttl_s":60s}',
}
BROKEN = {
    "an array": b"[]",
    "a number": b"1",
    "null": b"null",
    "no payload": b'{"task":"chat"}',
    "no task": b'{"payload":{}}',
    "a payload that is an array": b'{"task":"chat","payload":[]}',
    "a payload that is text": b'{"task":"chat","payload":"{}"}',
    "a payload that is null": b'{"task":"chat","payload":null}',
    "an unknown task": b'{"task":"sing","payload":{}}',
    "a task in capitals": b'{"task":"Chat","payload":{}}',
    "an unknown field": b'{"task":"chat","payload":{},"prioritee":1}',
    **{
        f"ttl_s {text}": f'{{"task":"chat","payload":{{}},"ttl_s":{text}}}'.encode()
        for text in ("0", "-1", "1.5", "0.0", '"60"', "true", "[]", str(MAX_TTL_S + 1), "9" * 30, "1e9", "NaN")
    },
}


async def test_a_body_that_is_no_job_is_refused(small: Live) -> None:
    for body in BROKEN.values():
        answer = await small.client.post("/v1/jobs", content=body, headers=JSON)
        assert problem(answer, 422, answer.json()["code"])["code"] in {"validation_failed", "unknown_task"}
        assert (await small.client.get("/v1/jobs")).json()["jobs"] == []


async def test_a_body_that_is_no_json_is_a_bad_request(small: Live) -> None:
    for body in NO_JSON.values():
        answer = await small.client.post("/v1/jobs", content=body, headers=JSON)
        assert "not JSON" in problem(answer, 400, "bad_request")["detail"]
        assert (await small.client.get("/v1/jobs")).json()["jobs"] == []


async def test_numbers_that_json_has_not_are_refused(live: Live) -> None:
    for text in ["NaN", "Infinity", "-Infinity", "1e999", "[1,[NaN]]"]:
        body = f'{{"task":"chat","payload":{{"a":{text}}}}}'
        answer = await live.client.post("/v1/jobs", content=body, headers=JSON)
        assert problem(answer, 422, answer.json()["code"])["code"] in {"not_json", "validation_failed"}
        assert (await live.client.get("/v1/jobs")).json()["jobs"] == []


async def test_the_shortest_and_the_longest_life_are_taken(live: Live) -> None:
    for ttl_s in [1, MAX_TTL_S, 60.0]:  # to JSON, 60.0 is an integer
        job_id = await live.job(ttl_s=ttl_s)
        assert (await live.client.get(f"/v1/jobs/{job_id}")).json()["ttl_s"] == ttl_s


async def test_a_payload_comes_back_as_it_was(live: Live) -> None:
    payload = {
        "text": '\0 \u0085 \u2028 \U0001f600 \x7f \ufffe \\ " </script>',
        "\0": [],
        "": {"": None},
        "numbers": [0, -0.0, 1e-300, 10**30, -(2**63), 0.1, True, False],
        "deep": json.loads("[" * 90 + "]" * 90),
    }
    job_id = await live.job(payload=payload)
    body = (await live.client.get(f"/v1/jobs/{job_id}")).json()
    assert json.dumps(body["payload"]) == json.dumps(payload)
    (entry,) = (await live.client.get("/v1/jobs")).json()["jobs"]
    assert entry == body


async def test_a_payload_of_200_kb_is_taken_and_one_byte_more_is_not(live: Live) -> None:
    room = PAYLOAD_LIMIT_BYTES - len('{"a":""}')
    job_id = await live.job(payload={"a": "x" * room})
    assert len((await live.client.get(f"/v1/jobs/{job_id}")).json()["payload"]["a"]) == room
    for text in ("x" * (room + 1), "\u00e9" * (room // 2 + 1)):
        answer = await live.client.post("/v1/jobs", json={"task": "chat", "payload": {"a": text}})
        problem(answer, 413, "payload_too_large")
    assert len((await live.client.get("/v1/jobs")).json()["jobs"]) == 1


async def test_faults_are_told_by_place_without_the_values(small: Live) -> None:
    body = {"task": ["swordfish"], "payload": "swordfish", "ttl_s": "swordfish"}
    details = problem(await small.client.post("/v1/jobs", json=body), 422, "validation_failed")
    assert sorted(fault["where"] for fault in details["errors"]) == ["task", "ttl_s"]
    assert "swordfish" not in json.dumps(details)


async def test_an_answer_to_many_faults_is_short(small: Live) -> None:
    body = {**JOB, **{f"x{n}": n for n in range(1000)}}
    details = problem(await small.client.post("/v1/jobs", json=body), 422, "validation_failed")
    assert len(json.dumps(details)) < 10_000


async def test_a_reason_that_is_none_cancels_nothing(small: Live) -> None:
    for body in [b"{", b'{"reason":1}', b'{"reasons":"x"}', b'{"reason":"' + b"x" * 1001 + b'"}', b"[]"]:
        job_id = await small.job()
        problem_code = (400, "bad_request") if body == b"{" else (422, "validation_failed")
        problem(await small.client.post(f"/v1/jobs/{job_id}/cancel", content=body, headers=JSON), *problem_code)
        assert (await small.client.get(f"/v1/jobs/{job_id}")).json()["status"] == "queued"


async def test_a_reason_of_any_text_cancels(live: Live) -> None:
    job_id = await live.job()
    answer = await live.client.post(f"/v1/jobs/{job_id}/cancel", json={"reason": "a\0b\u2028\U0001f600"})
    assert (answer.status_code, answer.json()["status"]) == (202, "canceled")
