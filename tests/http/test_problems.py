"""Every error is a problem with a code and the request's id, without internals."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest

from callsheet.http import problems
from callsheet.http.problems import STATUSES, Problem, answer, of_error
from callsheet.kernel import errors
from callsheet.kernel.errors import CallsheetError, StoreUnavailable
from tests.http.live import Live, problem, serving
from tests.running_worker import until
from tests.servers import RedisServer

UNKNOWN = "0199f0c2-7f7a-7d51-b3cd-0d52b5f0f5b1"


def kinds(root: type[CallsheetError] = CallsheetError) -> Iterator[type[CallsheetError]]:
    yield root
    for kind in root.__subclasses__():
        yield from kinds(kind)


KERNEL = sorted({kind.code for kind in kinds() if kind.__module__ == errors.__name__})


@pytest.mark.parametrize("code", KERNEL)
def test_every_error_of_the_kernel_has_a_status(code: str) -> None:
    assert 400 <= STATUSES[code] < 600
    error = CallsheetError("words")
    error.code = code
    result = of_error(error)
    assert (result.code, result.status) == (code, STATUSES[code])
    assert ("Retry-After" in result.headers) is (result.status in {429, 503})


def test_an_error_that_is_newer_than_the_table_is_ours() -> None:
    error = CallsheetError("words")
    error.code = "of_tomorrow"
    assert (of_error(error).code, of_error(error).status) == ("error", 500)


@pytest.mark.parametrize("code", sorted(STATUSES))
def test_every_code_makes_an_answer(code: str) -> None:
    result = answer(Problem(code, "words \ud800"), "id")
    assert (result.status_code, result.media_type) == (STATUSES[code], problems.MEDIA_TYPE)


ERRORS = [
    ("GET", "/", 404, "not_found"),
    ("GET", "/v1/jobs/", 404, "not_found"),
    ("GET", "/v1/nothing", 404, "not_found"),
    ("GET", "/v1/jobs/a/b/c", 404, "not_found"),
    ("GET", "//evil.example/v1/jobs/", 404, "not_found"),
    ("PUT", "/v1/jobs", 405, "method_not_allowed"),
    ("DELETE", f"/v1/jobs/{UNKNOWN}", 405, "method_not_allowed"),
    ("OPTIONS", "/v1/jobs", 405, "method_not_allowed"),
    ("GET", f"/v1/jobs/{UNKNOWN}", 404, "job_not_found"),
    ("GET", "/v1/jobs/not-an-id", 404, "job_not_found"),
    ("GET", f"/v1/jobs/{UNKNOWN.upper()}", 404, "job_not_found"),
    ("GET", "/v1/jobs/%00", 404, "job_not_found"),
    ("POST", f"/v1/jobs/{UNKNOWN}/cancel", 404, "job_not_found"),
    ("GET", "/v1/jobs?limit=0", 422, "validation_failed"),
    ("GET", "/v1/jobs?limit=x", 422, "validation_failed"),
    ("GET", "/v1/jobs?status=ended", 422, "validation_failed"),
    ("GET", "/v1/events?jobs=", 422, "validation_failed"),
    ("GET", "/v1/events?jobs=,,", 422, "validation_failed"),
]


async def test_an_error_is_a_problem(small: Live) -> None:
    for method, path, status, code in ERRORS:
        response = await small.client.request(method, f"{small.url}{path}")
        problem(response, status, code)
        if status == 405:
            assert response.headers["allow"]


async def test_a_filter_that_no_store_can_read_is_refused_by_all(live: Live) -> None:
    for query in ["cursor=x", "cursor=-1", "cursor=%00", f"cursor={'9' * 19}", "task=%00", "queue=%00"]:
        problem(await live.client.get(f"/v1/jobs?{query}"), 422, "validation_failed")


async def test_canceling_twice_is_an_illegal_move(live: Live) -> None:
    job_id = await live.job()
    assert (await live.client.post(f"/v1/jobs/{job_id}/cancel")).json()["status"] == "canceled"
    problem(await live.client.post(f"/v1/jobs/{job_id}/cancel"), 409, "illegal_move")


@pytest.mark.parametrize("path", ["/v1/jobs", f"/v1/jobs/{UNKNOWN}/events", "/v1/events"])
async def test_a_bug_is_logged_and_tells_nothing(
    small: Live, path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the password is swordfish")

    monkeypatch.setattr(small.engine, "get", broken)
    monkeypatch.setattr(small.engine, "find", broken)
    response = await small.client.get(path)
    body = problem(response, 500, "internal")
    assert response.headers["x-content-type-options"] == "nosniff"
    assert not {"swordfish", "Runtime", "Traceback", ".py"} & {word for word in str(body).split() if word}
    assert "swordfish" not in response.text
    assert [r.exc_info is not None for r in caplog.records if r.levelno >= logging.ERROR] == [True]  # once
    assert small.state.streams.total == 0
    assert (await small.client.get("/healthz")).status_code == 200


async def test_a_client_that_leaves_in_the_middle_of_its_body_is_no_bug(
    small: Live, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "callsheet.access")
    host, port = small.server.address
    key = small.client.headers["authorization"]
    head = f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: {key}\r\nContent-Length: 100\r\n\r\n{{"
    _, writer = await asyncio.open_connection(host, port)
    writer.write(head.encode())
    await writer.drain()
    await until(lambda: small.server.server_state.tasks)
    writer.close()
    await until(lambda: any(r.name == "callsheet.access" for r in caplog.records))
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_store_that_is_away_is_503_and_says_when_to_come_back(
    small: Live, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("cannot reach postgresql://user:swordfish@db")

    for verb in ("get", "find", "enqueue", "now"):
        monkeypatch.setattr(small.engine.store, verb, away)
    job = {"task": "chat", "payload": {}}
    for response in (
        await small.client.get(f"/v1/jobs/{UNKNOWN}"),
        await small.client.get("/v1/jobs"),
        await small.client.get("/v1/events"),
        await small.client.post("/v1/jobs", json=job),
        await small.client.post("/v1/jobs", json=job, headers={"Idempotency-Key": "k"}),
        await small.client.get("/readyz"),
    ):
        problem(response, 503, "store_unavailable")
        assert int(response.headers["retry-after"]) >= 1
        assert "swordfish" not in response.text


async def test_a_redis_that_was_killed_is_503_until_it_is_back() -> None:
    with RedisServer.start(settings={"appendfsync": "always"}) as server:
        async with serving(server.url()) as live:
            job_id = await live.job()
            server.kill9()
            for response in (
                await live.client.get(f"/v1/jobs/{job_id}"),
                await live.client.post("/v1/jobs", json={"task": "chat", "payload": {}}),
                await live.client.get("/readyz"),
            ):
                problem(response, 503, "store_unavailable")
                assert int(response.headers["retry-after"]) >= 1
            assert (await live.client.get("/healthz")).status_code == 200
            await asyncio.to_thread(server.start_again)
            assert (await live.client.get(f"/v1/jobs/{job_id}")).json()["job_id"] == job_id
            assert (await live.client.get("/readyz")).status_code == 200


async def test_a_key_cannot_be_checked_while_the_store_is_away(small: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("away")

    async with await small.key("a") as known, await small.key("a") as unknown:
        assert (await known.get("/v1/jobs")).status_code == 200
        monkeypatch.setattr(small.engine.store, "documents", away)
        assert (await known.get("/v1/jobs")).status_code == 200  # it was believed a moment ago
        problem(await unknown.get("/v1/jobs"), 503, "store_unavailable")
