"""A worker's report of an end is taken whatever its words are: a refusal would run a job again that has ended."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from callsheet.contracts.control_plane import routes
from callsheet.kernel.job import Status
from tests import stores
from tests.http.live import Live, serving

from .remote import Answer, Remote, add

NAMES = ("job_id", "attempt_id", "lease_token")
DEEP: list[Any] = []
for _ in range(300):
    DEEP = [DEEP]


@pytest.fixture(params=("sqlite", "postgres", "redis"))
async def live(request: pytest.FixtureRequest) -> AsyncIterator[Live]:
    async with serving(stores.ready_url(str(request.param)), routers=[routes.router]) as live:
        yield live


@pytest.fixture
def worker(live: Live) -> Remote:
    return Remote(live)


async def say(live: Live, verb: str, claim: Answer, more: Answer) -> Answer:
    """Send a report with Python's own JSON, which writes lone surrogates and NaN; the answer is a 200."""
    body = {"worker_id": "w1", **{name: claim[name] for name in NAMES}, **more}
    headers = {"Content-Type": "application/json"}
    answer = await live.client.post(f"/internal/worker/{verb}", content=json.dumps(body).encode(), headers=headers)
    assert answer.status_code == 200, answer.text
    found: Answer = answer.json()
    return found


ODD_CODES = [
    ({"code": "x" * 101}, "x" * 100),
    ({}, "unknown"),
    ({"code": ""}, "unknown"),
    ({"code": None}, "unknown"),
    ({"code": 404}, "404"),
    ({"code": ["a"]}, "unknown"),
    ({"code": "a\0b"}, "a\ufffdb"),
    ({"code": "\ud800"}, "?"),
]


@pytest.mark.parametrize(("error", "code"), ODD_CODES)
async def test_a_final_failure_is_final_whatever_its_code_is(
    live: Live, worker: Remote, error: Answer, code: str
) -> None:
    job_id = await add(live)
    answer = await say(live, "fail", await worker.claim(), {"error": {**error, "retryable": False}})
    assert (answer["ok"], answer["requeued"]) == (True, False)
    job = await live.engine.get(job_id)
    assert (job.status, json.loads(job.error or "{}")["code"]) == (Status.FAILED, code)


ODD_FAILURES: list[Answer] = [
    {"error": {"code": "a", "message": {"text": 1}, "stack": ["l1", "l2"], "retryable": False}},
    {"error": {"code": "a", "message": "\ud800 \0" * 9_000, "stack": 7, "retryable": "false"}},
    {"error": {"code": "a", "retryable": False, "details": "text"}},
    {"error": {"code": "a", "retryable": False, "details": {"long": "é" * 90_000}}},
    {"error": {"code": "a", "retryable": False, "details": {"\udfff": float("nan"), "deep": DEEP}}},
    {"error": {"code": "a", "retryable": 0}, "stream": None, "message_id": 17, "bury": None, "retry_in_ms": "soon"},
]


@pytest.mark.parametrize("told", ODD_FAILURES)
async def test_a_final_failure_is_final_whatever_else_it_says(live: Live, worker: Remote, told: Answer) -> None:
    job_id = await add(live)
    assert not (await say(live, "fail", await worker.claim(), told))["requeued"]
    assert (await live.engine.get(job_id)).status is Status.FAILED


@pytest.mark.parametrize("error", [None, "out of memory", 7, ["a"]])
async def test_an_error_that_is_no_object_is_its_message(live: Live, worker: Remote, error: Any) -> None:
    job_id = await add(live)
    await say(live, "fail", await worker.claim(), {"error": error})
    stored_error = json.loads((await live.engine.get(job_id)).error or "{}")
    assert stored_error["code"] == "unknown"
    assert error is None or str(error).strip("[]'") in stored_error["message"]


async def test_a_failure_without_an_error_is_a_failure(live: Live, worker: Remote) -> None:
    job_id = await add(live, max_attempts=1)
    assert (await say(live, "fail", await worker.claim(), {}))["dlq"]
    assert (await live.engine.get(job_id)).status is Status.DEAD_LETTER


async def test_a_long_wait_for_another_attempt_is_the_longest_that_there_is(live: Live, worker: Remote) -> None:
    job_id = await add(live)
    answer = await say(live, "fail", await worker.claim(), {"error": {"code": "a"}, "retry_in_ms": 10**30})
    assert answer["requeued"]
    assert (await live.engine.get(job_id)).status is Status.QUEUED


@pytest.mark.parametrize("result", [float("nan"), {"a": [float("-inf")], "b": "\ud83d"}, {"\udc00": "\0"}, DEEP])
async def test_a_success_is_one_whatever_its_result_is(live: Live, worker: Remote, result: Any) -> None:
    job_id = await add(live)
    body = {"result": result, "stream": 3, "message_id": None}
    assert (await say(live, "complete", await worker.claim(), body))["ack"]
    assert (await live.engine.get(job_id)).status is Status.SUCCEEDED


async def test_an_attempt_may_be_named_by_a_number(live: Live, worker: Remote) -> None:
    job_id = await add(live)
    claim = await worker.claim()
    await say(live, "complete", claim, {"attempt_id": int(claim["attempt_id"])})
    assert (await live.engine.get(job_id)).status is Status.SUCCEEDED


async def test_a_wrong_move_harms_no_end_beside_it(live: Live, worker: Remote) -> None:
    first, second = await add(live), await add(live)
    one, two = await worker.claim(), await worker.claim()
    odd = {"do": "progress", "percent": "half"}
    end = {"do": "fail", "error": {"code": 7, "retryable": False}}
    long = {"do": "progress", "percent": 5, "message": "m" * 5_000}
    answers = await worker.move((one, odd), (one, long), (one, end), (two, {"do": "nothing"}), (two, end))
    assert [answer["ok"] for answer in answers] == [False, True, True, False, True]
    assert (answers[0]["code"], "percent" in answers[0]["detail"]) == ("validation_failed", True)
    assert {(await live.engine.get(job_id)).status for job_id in (first, second)} == {Status.FAILED}


@pytest.mark.parametrize("body", [{"max_wait_ms": 10**9}, {"max_jobs": 10**6, "max_wait_ms": 10**30}])
async def test_a_claim_above_the_limits_is_held_to_them(live: Live, worker: Remote, body: Answer) -> None:
    job_id = await add(live)
    answer = await worker.send("claim", streams=["default"], **body)
    assert (answer.status_code, answer.json()["job_id"]) == (200, job_id)


async def test_a_heartbeat_above_the_limits_is_held_to_them(live: Live, worker: Remote) -> None:
    job_id = await add(live)
    claim = await worker.claim()
    await live.engine.cancel(job_id, "so that the wait is over")
    lease = {"job_id": job_id, "lease_token": claim["lease_token"]}
    one = await worker.send("heartbeat", **lease, wait_ms=10**9, message="m" * 5_000, progress=1)
    many = await worker.send("heartbeats", leases=[lease], wait_ms=10**9)
    assert (one.status_code, one.json()["cancel"]) == (200, True)
    assert (many.status_code, many.json()["leases"][0]["cancel"]) == (200, True)


@pytest.mark.parametrize("name", ["job_id", "lease_token", "worker_id"])
async def test_what_proves_a_lease_is_not_guessed(live: Live, worker: Remote, name: str) -> None:
    job_id = await add(live)
    claim = await worker.claim()
    body = {"worker_id": "w1", **{known_names: claim[known_names] for known_names in NAMES}, name: 7}
    answer = await live.client.post("/internal/worker/fail", json=body)
    assert (answer.status_code, name in answer.text) == (422, True)
    assert (await live.engine.get(job_id)).status is Status.RUNNING
