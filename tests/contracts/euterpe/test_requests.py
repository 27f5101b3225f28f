"""The contract's HTTP interface: valid requests, permitted callers, and answers to repeated requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from callsheet.contracts.euterpe import routes
from callsheet.contracts.euterpe.ids import ids_of
from callsheet.contracts.euterpe.locations import source_of
from callsheet.contracts.euterpe.routes import VAULT
from callsheet.kernel import commands
from callsheet.kernel.contracts import EUTERPE
from callsheet.kernel.retry import JobError
from callsheet.net.guard import StorageRules
from callsheet.store.protocol import ClaimRequest
from tests import stores
from tests.contracts.euterpe.kit import MP3, TENANT, Stack, running
from tests.http.live import serving
from tests.outbox.sink import RULES
from tests.store_driver import new_job

OWN: dict[str, Any] = {"source": f"object:uploads/{TENANT}/0/a.wav", "outputs": [MP3]}
KEYS = {"access_key_id": "AK", "secret_access_key": "a-secret-of-the-tests"}
FROM_S3: dict[str, Any] = {"source": "s3://media/a.wav", "outputs": [MP3], "credentials": {"source": KEYS}}
UNKNOWN = "0199f0c2-7f7a-7d51-b3cd-0d52b5f0f5b1"


@pytest.fixture(scope="module")
def url() -> str:
    return stores.fresh_url("sqlite")


@pytest.fixture
async def stack(url: str, tmp_path: Path) -> AsyncIterator[Stack]:
    async with running(url, tmp_path, worker=False) as stack:
        yield stack


def output(**fields: Any) -> dict[str, Any]:
    return {**OWN, "outputs": [{**MP3, **fields}]}


BAD: list[tuple[dict[str, Any], str]] = [
    ({}, "source"),
    ({"source": "object:a"}, "outputs"),
    ({**OWN, "outputs": []}, "outputs"),
    ({**OWN, "outputs": [MP3] * 21}, "outputs"),
    ({**OWN, "outputs": [MP3, MP3]}, "same key"),
    ({**OWN, "sauce": 1}, "sauce"),
    (output(bitrate="64k"), "bitrate"),
    (output(format="mp5"), "format"),
    (output(key="../a"), "no file name"),
    (output(key="a/b"), "no file name"),
    (output(key=""), "no file name"),
    (output(audio_kbps="64"), "audio_kbps"),
    (output(audio_kbps=64.5), "audio_kbps"),
    (output(audio_kbps=9_999), "audio_kbps"),
    (output(audio_kbps=-1), "audio_kbps"),
    (output(sample_rate_hz=44_101), "sample_rate_hz"),
    (output(channels=9), "channels"),
    (output(width=1, format="mp4"), "width"),
    (output(fps=1_000, format="mp4"), "fps"),
    (output(video_codec="h264"), "video_codec"),
    (output(video_kbps=800), "outputs.0.video_kbps: mp3 holds no picture"),
    (output(width=640), "outputs.0.width: mp3 holds no picture"),
    (output(key="a.txt"), "outputs.0.key: the name of mp3 ends in .mp3"),
    (output(key="a.flac"), "outputs.0.key: the name of mp3 ends in .mp3"),
    (output(video_codec="vp9", format="mp4"), "video_codec"),
    (output(loudness_lufs=3), "loudness_lufs"),
    (output(start_s=-1), "start_s"),
    (output(start_s=2, end_s=1), "end_s"),
    ({**OWN, "source": "/etc/passwd"}, "object:KEY"),
    ({**OWN, "source": "file:///etc/passwd"}, "object:KEY"),
    ({**OWN, "source": "object:../a"}, "key"),
    ({**OWN, "source": "object:.callsheet/a"}, "key"),
    ({**OWN, "source": "s3://A/b"}, "bucket"),
    ({**OWN, "source": "s3://key:secret@media/b"}, "bucket"),
    ({**OWN, "source": "s3://media/"}, "key"),
    ({**OWN, "source": "s3://media/a.wav"}, "needs keys"),
    ({**OWN, "source": "https://"}, "host"),
    ({**OWN, "output": "https://example.org/put"}, "object:PREFIX"),
    ({**OWN, "output": "s3://media/out"}, "needs keys"),
    ({**OWN, "output": "object:a/../b"}, "key"),
    ({**OWN, "credentials": {"source": KEYS}}, "takes no keys"),
    ({**OWN, "source_storage": {"endpoint": "https://s3.example.org"}}, "not in an S3"),
    ({**OWN, "refresh_url": "https://example.org/refresh"}, "refresh_url"),
    ({**FROM_S3, "credentials": {"source": {**KEYS, "password": "x"}}}, "password"),
    ({**FROM_S3, "credentials": {"source": {"access_key_id": "AK"}}}, "secret_access_key"),
    ({**FROM_S3, "credentials": {"source": {**KEYS, "expires_at": "soon"}}}, "expires_at"),
    ({**FROM_S3, "source_storage": {"region": "Mars!"}}, "region"),
    ({**OWN, "priority": 40_000}, "priority"),
    ({**OWN, "priority": "high"}, "priority"),
    ({**OWN, "max_attempts": 0}, "max_attempts"),
    ({**OWN, "metadata": {"a": 1}}, "metadata"),
    ({**OWN, "status_webhook_url": ""}, "status_webhook_url"),
]


async def test_a_request_that_cannot_be_right_is_refused_with_the_place(stack: Stack) -> None:
    for body, where in BAD:
        response = await stack.client.post("/transcode", json=body)
        assert (response.status_code, response.json()["code"]) == (422, "validation_failed"), (body, response.text)
        assert where in response.text, (body, response.text)
        assert "Value error" not in response.text
        assert all(fault["where"] not in ("", "body") for fault in response.json()["errors"]), response.text
        assert KEYS["secret_access_key"] not in response.text
    counts = await stack.live.engine.store.counts()
    assert counts.get("transcode", {}) == {}


INSIDE = (
    "http://169.254.169.254/latest",
    "https://10.0.0.1/hook",
    "https://[::ffff:10.0.0.1]/hook",
    "ftp://example.org/",
    "https://user:pw@example.org/",
)


async def test_a_url_that_leads_inside_is_refused_before_the_job_is_taken(stack: Stack) -> None:
    for where in INSIDE:
        storage = {**FROM_S3, "source_storage": {"endpoint": where}}
        bodies = [{**OWN, "status_webhook_url": where}, {**FROM_S3, "refresh_url": where}, storage]
        bodies += [{**OWN, "source": where}] if where.startswith("http") else []
        for body in bodies:
            response = await stack.client.post("/transcode", json=body)
            assert (response.status_code, response.json()["code"]) == (422, "invalid_target"), response.text
            (field,) = body.keys() - (FROM_S3 if "refresh_url" in body or "source_storage" in body else OWN).keys() or {
                "source"
            }
            place = f"{field}.endpoint" if field == "source_storage" else field
            assert response.json()["errors"][0]["where"] == place, response.text
            assert ("callback" in response.text) is field.endswith("_url"), response.text


async def test_a_key_knows_a_source_by_all_that_names_it_and_not_by_its_signature(stack: Stack) -> None:
    body = {**OWN, "outputs": [MP3]}

    async def post(key: str, query: str) -> httpx2.Response:
        source = f"https://files.example.org/download?{query}"
        return await stack.client.post("/transcode", json={**body, "source": source}, headers={"Idempotency-Key": key})

    first = await post("url-1", "file=1&X-Amz-Signature=aaaa&X-Amz-Date=1")
    assert first.status_code == 202, first.text
    same = await post("url-1", "file=1&X-Amz-Signature=bbbb&X-Amz-Date=2")
    assert same.json() == first.json()
    other = await post("url-1", "file=2&X-Amz-Signature=aaaa&X-Amz-Date=1")
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")
    azure = await post("url-2", "file=1&sig=aaaa&se=2026&sp=r")
    assert (await post("url-2", "file=1&sig=bbbb&se=2027&sp=r")).json() == azure.json()
    plain = await post("url-3", "se=1")
    assert plain.status_code == 202
    assert (await post("url-3", "se=2")).status_code == 409, "without a signature of Azure's it is a name"
    for name in ("expires", "policy", "Key-Pair-Id", "x-amz-date"):
        assert (await post(name, f"{name}=1")).status_code == 202
        assert (await post(name, f"{name}=2")).status_code == 409, f"without a signature {name} is a name, too"
        signed_url = await post(f"signed-{name}", f"{name}=1&Signature=a")
        assert (await post(f"signed-{name}", f"{name}=2&Signature=b")).json() == signed_url.json()


async def test_a_tenant_cannot_name_another_tenants_object(stack: Stack) -> None:
    for key in ("uploads/other/0/a.wav", "outputs/other/a.wav", "a.wav", f"uploads/{TENANT}x/a.wav"):
        response = await stack.client.post("/transcode", json={**OWN, "source": f"object:{key}"})
        assert response.status_code == 422
        assert "no such object of yours" in response.text


async def test_a_post_enqueues_only_and_answers_202_with_the_job(stack: Stack) -> None:
    response = await stack.client.post("/transcode", json={**OWN, "priority": 7, "max_attempts": 2})
    assert response.status_code == 202
    body = response.json()
    assert body["status"] == "queued"
    assert response.headers["location"] == body["status_url"] == f"/transcode/status?job_id={body['job_id']}"
    job = await stack.live.engine.get(body["job_id"])
    assert (job.contract, job.priority, job.max_attempts, job.attempt_count) == ("euterpe", 7, 2, 0)
    assert job.requester_id == TENANT
    assert (await stack.status(job.job_id))["status"] == "queued"


async def test_the_same_key_and_request_is_the_same_job_and_another_request_a_conflict(stack: Stack) -> None:
    header = {"Idempotency-Key": "talk-1"}
    first = await stack.client.post("/transcode", json=OWN, headers=header)
    again = await stack.client.post("/transcode", json=OWN, headers=header)
    assert again.status_code == 202
    assert again.content == first.content
    assert again.headers["idempotency-replayed"] == "true"
    other = await stack.client.post("/transcode", json={**OWN, "priority": 1}, headers=header)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")
    async with await stack.live.key("other") as stranger:
        apart = await stranger.post("/transcode", json={**OWN, "source": "object:uploads/other/a"}, headers=header)
    assert apart.status_code == 202
    assert apart.json()["job_id"] != first.json()["job_id"]


async def test_newer_credentials_do_not_make_another_request_of_it(stack: Stack) -> None:
    header = {"Idempotency-Key": "talk-2"}
    first = await stack.client.post("/transcode", json=FROM_S3, headers=header)
    newer = {**FROM_S3, "credentials": {"source": {"access_key_id": "AK2", "secret_access_key": "another-secret"}}}
    again = await stack.client.post("/transcode", json=newer, headers=header)
    assert again.content == first.content
    one = {**OWN, "source": "http://127.0.0.1:9/a.wav?X-Amz-Signature=1"}
    other = {**OWN, "source": "http://127.0.0.1:9/b.wav?X-Amz-Signature=1"}
    header = {"Idempotency-Key": "talk-3"}
    first = await stack.client.post("/transcode", json=one, headers=header)
    same = await stack.client.post("/transcode", json={**one, "source": one["source"] + "2"}, headers=header)
    assert same.content == first.content
    assert (await stack.client.post("/transcode", json=other, headers=header)).status_code == 409


async def test_a_hundred_equal_requests_at_once_are_one_job(stack: Stack) -> None:
    header = {"Idempotency-Key": "talk-4"}
    answers = await asyncio.gather(*(stack.client.post("/transcode", json=FROM_S3, headers=header) for _ in range(100)))
    assert {response.status_code for response in answers} == {202}
    assert len({response.content for response in answers}) == 1


async def test_keys_and_scopes_are_asked_for(stack: Stack) -> None:
    async with stack.live.bare() as nobody:
        assert (await nobody.post("/transcode", json=OWN)).status_code == 401
        assert (await nobody.get(f"/transcode/status?job_id={UNKNOWN}")).status_code == 401
        assert (await nobody.put(f"/transcode/{UNKNOWN}/credentials", json={})).status_code == 401
    async with await stack.live.key(TENANT, scopes=["jobs:read"]) as reader:
        assert (await reader.post("/transcode", json=OWN)).status_code == 403
        assert (await reader.put(f"/transcode/{UNKNOWN}/credentials", json={})).status_code == 403
    async with await stack.live.key(TENANT, scopes=["jobs:write"]) as writer:
        assert (await writer.get(f"/transcode/status?job_id={UNKNOWN}")).status_code == 403


async def test_an_unknown_job_is_404_and_so_is_anothers(stack: Stack) -> None:
    job_id = await stack.post(OWN)
    async with await stack.live.key("other") as stranger:
        for wanted_ids in (job_id, UNKNOWN, "nonsense"):
            response = await stranger.get("/transcode/status", params={"job_id": wanted_ids})
            assert (response.status_code, response.json()["code"]) == (404, "job_not_found")
        put = await stranger.put(f"/transcode/{job_id}/credentials", json={"source": KEYS})
        assert put.status_code == 404
    assert (await stack.client.get("/transcode/status")).status_code == 422
    (other,) = await stack.live.engine.enqueue([new_job(requester_id=TENANT)])  # of another contract
    assert (await stack.client.get("/transcode/status", params={"job_id": other.job_id})).status_code == 404


async def test_a_pruned_job_is_410_for_its_requester_and_404_for_all_others(stack: Stack) -> None:
    engine = stack.live.engine
    job_id = await stack.post({**OWN, "priority": 100})
    (job,) = await engine.claim(ClaimRequest("w", ("transcode",), 1))
    assert job.job_id == job_id
    await engine.settle([commands.fail(job, JobError("not_media", retryable=False), rand=0.5)])
    assert (await stack.status(job_id))["status"] == "failed"
    assert await engine.store.delete([job.claim]) == 1  # as pruning does, without the wait
    gone_job = await stack.client.get("/transcode/status", params={"job_id": job_id})
    assert (gone_job.status_code, gone_job.json()["code"]) == (410, "job_gone")
    put = await stack.client.put(f"/transcode/{job_id}/credentials", json={"source": KEYS})
    assert put.status_code == 410
    flipped_text = job_id[:-1] + ("0" if job_id[-1] != "0" else "1")
    for other in (flipped_text, f"f{job_id[1:]}", UNKNOWN, job_id[:-8]):
        response = await stack.client.get("/transcode/status", params={"job_id": other})
        assert (response.status_code, response.json()["code"]) == (404, "job_not_found"), other
    async with await stack.live.key("other") as stranger:
        assert (await stranger.get("/transcode/status", params={"job_id": job_id})).status_code == 404


async def test_all_processes_on_a_store_know_each_others_ids(stack: Stack) -> None:
    one, other = await asyncio.gather(*(ids_of(stack.live.engine.store) for _ in range(2)))
    job_id = one.new(TENANT)
    assert other.was_given(job_id, TENANT)
    assert not other.was_given(job_id, "other")
    assert len({one.new(TENANT) for _ in range(1000)}) == 1000


async def test_the_status_is_200_in_every_state_in_the_contracts_words(stack: Stack) -> None:
    engine = stack.live.engine
    job_id = await stack.post({**OWN, "max_attempts": 2, "priority": 100})
    seen = [(await stack.status(job_id))["status"]]
    for words in (("", "fetching", "processing", "uploading"), ("", "fetching")):
        (job,) = await engine.claim(ClaimRequest("w", ("transcode",), 1))
        assert job.job_id == job_id
        for word in words:
            job = await engine.settle_one(job, commands.advance(job, word)) if word else job
            seen.append((await stack.status(job_id))["status"])
        await engine.settle([commands.retry(job, JobError("503", "busy"), delay_ms=0)])
        seen.append((await stack.status(job_id))["status"])
    stages = ["claimed", "fetching", "processing", "uploading"]
    assert seen == ["queued", *stages, "queued", "claimed", "fetching", "dead_letter"]
    status = await stack.status(job_id)
    assert status["error"] == {"code": "503", "message": "busy"}
    assert (status["attempt_count"], status["max_attempts"]) == (2, 2)
    assert set(seen) | {"succeeded", "failed"} == {*EUTERPE.words.values(), *(EUTERPE.stages or ())}


async def test_credentials_are_sealed_with_the_job_and_their_version_rises(stack: Stack) -> None:
    job_id = await stack.post(FROM_S3)
    (credentials,) = await stack.live.engine.store.credentials([job_id])
    assert credentials is not None
    assert (credentials.requester_id, credentials.envelope.credential_version) == (TENANT, 1)
    assert KEYS["secret_access_key"] not in str(credentials)
    where = f"/transcode/{job_id}/credentials"
    put = await stack.client.put(where, json={"source": KEYS, "expected_version": 1})
    assert put.json() == {"job_id": job_id, "credential_version": 2}
    late = await stack.client.put(where, json={"source": KEYS, "expected_version": 1})
    assert (late.status_code, late.json()["code"]) == (409, "credentials_conflict")
    assert (await stack.client.put(where, json={"source": KEYS})).json()["credential_version"] == 3
    assert (await stack.status(job_id))["credential_version"] == 3
    for wrong in ({}, {"output": KEYS}, {"source": KEYS, "source_url": "https://a.example/"}, {"keys": 1}):
        assert (await stack.client.put(where, json=wrong)).status_code == 422


async def test_a_new_source_url_cannot_lead_to_another_host(stack: Stack) -> None:
    job_id = await stack.post({**OWN, "source": "http://127.0.0.1:9/a?token=1"})
    where = f"/transcode/{job_id}/credentials"
    refusal = await stack.client.put(where, json={"source_url": "https://elsewhere.example/a"})
    assert (refusal.status_code, refusal.json()["code"]) == (422, "validation_failed")
    assert (await stack.client.put(where, json={"source_url": "http://127.0.0.1:9/a?token=2"})).status_code == 200


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("http://[::1]:9000/a", "http://[::1]"),
        ("https://[2001:DB8:0::1]/a.mp4?x=1", "https://[2001:db8::1]"),
        ("https://Files.Example.org:8443/a", "https://files.example.org"),
        ("https://192.0.2.1/a", "https://192.0.2.1"),
    ],
)
def test_what_a_job_holds_of_a_url_is_read_as_it_was_written(url: str, place: str) -> None:
    assert str(source_of(url)) == place
    assert source_of(place) == source_of(url), "an attempt reads the place again"


@pytest.mark.parametrize("url", ["http://[::1/a", "http://::1/a", "http://[]/a", "http://[v1.x]/a", "http://a:b:c/"])
def test_a_host_that_is_none_is_refused_at_the_door(url: str) -> None:
    with pytest.raises(ValueError, match="host"):
        source_of(url)


async def test_newer_credentials_lead_only_where_sources_may_be(stack: Stack) -> None:
    stack.live.state.storage_rules = StorageRules(RULES._replace(any_port=False, ports=frozenset({9})))
    try:
        job_id = await stack.post({**OWN, "source": "http://127.0.0.1:9/a?token=1"})
        where = f"/transcode/{job_id}/credentials"
        refusal = await stack.client.put(where, json={"source_url": "http://127.0.0.1:10/a?token=2"})
        assert (refusal.status_code, refusal.json()["code"]) == (422, "invalid_target"), refusal.text
        assert refusal.json()["errors"][0]["where"] == "source_url"
        assert (await stack.client.put(where, json={"source_url": "http://127.0.0.1:9/a?token=2"})).status_code == 200
    finally:
        stack.live.state.storage_rules = None


async def test_every_refusal_of_a_field_names_it(stack: Stack) -> None:
    url, s3 = {**OWN, "source": "http://127.0.0.1:9/a?token=1"}, await stack.post(FROM_S3)
    where = f"/transcode/{await stack.post(url)}/credentials"
    refusals = {
        "source": await stack.client.post("/transcode", json={**OWN, "source": "object:uploads/another/0/a.wav"}),
        "source_url": await stack.client.put(where, json={"source_url": "https://elsewhere.example/a"}),
        "output": await stack.client.put(where, json={"source_url": "http://127.0.0.1:9/a", "output": KEYS}),
    }
    for field, response in refusals.items():
        assert (response.status_code, response.json()["code"]) == (422, "validation_failed"), response.text
        assert [fault["where"] for fault in response.json()["errors"]] == [field], response.text
        assert response.json()["detail"].startswith(f"{field}: ")
        assert "Value error" not in response.text
    missing = await stack.client.put(f"/transcode/{s3}/credentials", json={})
    assert [fault["where"] for fault in missing.json()["errors"]] == ["source"], missing.text


async def test_a_job_without_credentials_takes_none(stack: Stack) -> None:
    job_id = await stack.post(OWN)
    response = await stack.client.put(f"/transcode/{job_id}/credentials", json={})
    assert (response.status_code, response.json()["code"]) == (409, "credentials_gone")


async def test_callbacks_need_a_secret_first(stack: Stack) -> None:
    async with await stack.live.key("bare") as client:
        body = {**OWN, "source": "object:uploads/bare/a.wav", "status_webhook_url": stack.hook}
        response = await client.post("/transcode", json=body)
        assert (response.status_code, response.json()["code"]) == (409, "webhook_secret_missing")
        await stack.endpoints.new_own_secret("bare")
        assert (await client.post("/transcode", json=body)).status_code == 202


async def test_without_a_keyring_credentials_are_refused_and_other_jobs_taken(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.live.state.slots.pop(VAULT, None)
    monkeypatch.delenv("CALLSHEET_KEYS")
    response = await stack.client.post("/transcode", json=FROM_S3)
    assert (response.status_code, response.json()["code"]) == (503, "no_keyring")
    assert (await stack.client.post("/transcode", json=OWN)).status_code == 202


async def test_a_server_that_calls_nobody_takes_no_urls(url: str) -> None:
    async with serving(url, routers=[routes.router]) as live:
        body = {**OWN, "source": "object:uploads/~/1/in.wav", "status_webhook_url": "https://example.org/"}
        assert (await live.client.post("/transcode", json=body)).json()["code"] == "webhooks_off"
