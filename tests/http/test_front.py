"""What every request and answer has, whatever the route: ids, headers, and an access log without secrets."""

from __future__ import annotations

import logging
import re
from urllib.parse import quote

import httpx2
import pytest

from callsheet.http.keys import new_key
from tests.http.live import Live
from tests.http.raw import exchange
from tests.running_worker import until

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch
HEADERS = ("Authorization", "X-API-Key", "X-Request-ID", "Accept", "User-Agent", "Cookie", "Referer", "Host")
PATHS = ["/healthz", "/readyz", "/metrics", "/openapi.json", "/v1/jobs", "/v1/nothing", "/v1/jobs?limit=0"]


def told(caplog: pytest.LogCaptureFixture) -> str:
    """Return log records, except those of the tests' own client."""
    records = [record for record in caplog.records if record.name.startswith(("callsheet", "uvicorn"))]
    return "\n".join(f"{record.getMessage()} {record.__dict__}" for record in records)


async def test_every_answer_has_an_id_and_the_headers_that_browsers_heed(small: Live) -> None:
    for path in PATHS:
        answer = await small.client.get(path)
        assert UUID(answer.headers["x-request-id"])
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert "server" not in answer.headers
        assert not [name for name in answer.headers if name.startswith("access-control-")]


async def test_a_client_s_own_request_id_comes_back_and_marks_the_job(small: Live) -> None:
    for arguments in ["a", "0199f0c2-7f7a", "A.b:c_d-e", "x" * 64]:
        body = {"task": "chat", "payload": {}}
        answer = await small.client.post("/v1/jobs", json=body, headers={"X-Request-ID": arguments})
        assert answer.headers["x-request-id"] == arguments
        job = (await small.client.get(answer.headers["location"])).json()
        assert job["correlation_id"] == arguments


async def test_a_request_id_that_is_garbage_is_replaced(small: Live) -> None:
    for arguments in [
        "",
        "x" * 65,
        "a b",
        "a\tb",
        "<script>",
        "cs_live_" + "x" * 48,
        "\u00e9",
        "a;b",
        "${jndi:x}",
        '"',
    ]:
        headers = httpx2.Headers({"X-Request-ID": arguments}, encoding="latin-1")
        answer = await small.client.get("/v1/jobs?limit=0", headers=headers)
        assert UUID(answer.headers["x-request-id"])
        assert answer.json()["request_id"] == answer.headers["x-request-id"]


async def test_bytes_that_are_no_http_get_an_answer_and_no_bug(small: Live, caplog: pytest.LogCaptureFixture) -> None:
    for bytes_ in (
        b"\x16\x03\x01\x02\x00\x01",
        b"GET / HTTP/9.9\r\n\r\n",
        b"G\0T / HTTP/1.1\r\n\r\n",
        b"\r\n\r\n\r\nx",
    ):
        response = await exchange(small, bytes_ + b"\r\n\r\n")
        assert response.startswith(b"HTTP/1.1 400")
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_one_line_is_logged_for_each_request(small: Live, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "callsheet.access")
    job_id = await small.job()
    caplog.clear()
    await small.client.get(f"/v1/jobs/{job_id}?x=y", headers={"X-Request-ID": "mine"})
    (record,) = [r for r in caplog.records if r.name == "callsheet.access"]
    fields = record.fields  # type: ignore[attr-defined]
    assert fields.pop("took_ms") > 0
    assert fields == {
        "method": "GET",
        "path": f"/v1/jobs/{job_id}",
        "status": 200,
        "request_id": "mine",
        "key": "bootstrap",
    }
    assert record.getMessage().startswith(f"GET /v1/jobs/{job_id} 200 in ")


async def test_a_line_cannot_be_forged(small: Live, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "callsheet.access")
    await small.client.get("/v1/jobs/x%0A%0DGET%20forged%20200")
    await small.client.get("/nothing%0AGET%20%2Fforged%20200")
    assert "forged" not in told(caplog)
    assert "/v1/jobs/{job_id} 404" in told(caplog)
    assert "(no route) 404" in told(caplog)


async def test_nothing_that_a_client_writes_gets_into_a_log(small: Live, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    canary = new_key()
    text = quote(canary)
    job_id = await small.job()
    job = {"task": "chat", "payload": {"prompt": canary, canary: canary}}
    client = small.client
    answers = [
        await client.get(f"/v1/jobs/{text}"),
        await client.get(f"/{text}"),
        await client.get(f"/v1/jobs/{text}/events"),
        await client.get(f"/v1/jobs?cursor={text}"),
        await client.get(f"/v1/jobs?task={text}&queue={text}&{text}={text}"),
        await client.get(f"/v1/jobs?status={text}&limit={text}"),
        await client.get(f"/v1/jobs/{job_id}/events?after={text}"),
        await client.get(f"/v1/jobs/{job_id}/events?ticket={text}&lastEventId={text}"),
        await client.get(f"/v1/events?jobs={text}"),
        await client.get(f"/v1/events?ticket={text}"),
        await client.post(f"/v1/events/ticket?jobs={text}"),
        await client.request(f"CANARY-{canary}".replace("_", "-"), "/v1/jobs"),
        await client.post("/v1/jobs", json=job),
        await client.post("/v1/jobs", json={**job, canary: 1}),
        await client.post("/v1/jobs", json={**job, "task": canary}),
        await client.post("/v1/jobs", content=canary),
        await client.post("/v1/jobs", content="{}", headers={"Content-Type": canary}),
        await client.post("/v1/jobs", content="{}", headers={"Content-Encoding": canary}),
        await client.post("/v1/jobs", json=job, headers={"Idempotency-Key": canary}),
        await client.post("/v1/jobs", json={**job, "ttl_s": 1}, headers={"Idempotency-Key": canary}),
        await client.post("/v1/jobs", json=job, headers={"Idempotency-Key": f"{canary} {canary}"}),
        await client.post(f"/v1/jobs/{job_id}/cancel", json={"reason": canary}),
        await client.post(f"/v1/jobs/{job_id}/cancel", json={"reason": canary}),
    ]
    answers += [await client.get("/v1/jobs", headers={name: canary}) for name in HEADERS]
    answers += [await client.get("/v1/jobs", headers={"Authorization": f"Bearer {canary}"})]
    assert {answer.status_code for answer in answers} == {200, 201, 202, 400, 401, 404, 409, 415, 422}
    await until(lambda: told(caplog).count("callsheet.access") >= len(answers))
    for form in (canary, canary[8:40], canary.replace("_", "-")):
        assert form not in told(caplog)


async def test_a_ticket_never_gets_into_a_log(small: Live, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    job_id = await small.job()
    await small.client.post(f"/v1/jobs/{job_id}/cancel")
    body = (await small.client.post(f"/v1/jobs/{job_id}/events/ticket")).json()
    async with small.bare() as browser:
        assert (await browser.get(body["url"])).status_code == 200
        assert (await browser.get(body["url"])).status_code == 401
    assert body["ticket"] not in told(caplog)
    assert "/events 200" in told(caplog)
