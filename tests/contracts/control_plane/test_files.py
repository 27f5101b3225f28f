"""Files of attempts: uploaded straight to the object store, adopted by the completion, read by their tenant alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from callsheet.api import objects, quotas, uploads
from callsheet.contracts.control_plane import files, routes
from callsheet.objects.folders import key_of
from tests.http.live import Live, serving

from .remote import Answer, Remote, add

ROUTERS = [routes.router, files.worker_router, files.router, objects.router, uploads.router, quotas.router]


@pytest.fixture
async def live(url: str, tmp_path: Path) -> AsyncIterator[Live]:
    async with serving(url, routers=ROUTERS, objects_url=f"file://{tmp_path}/objects") as live:
        yield live


@pytest.fixture
def worker(live: Live) -> Remote:
    return Remote(live)


async def ask(worker: Remote, claim: Answer, name: str, **more: Any) -> Answer:
    answer = await worker.say("uploads", claim, name=name, **more)
    assert answer.status_code == 200, answer.text
    body: Answer = answer.json()
    return body


async def send(live: Live, signed_url: Answer, data: bytes) -> httpx2.Response:
    async with live.bare() as client:
        return await client.request(
            signed_url["method"], signed_url["url"], headers=signed_url["headers"], content=data
        )


async def test_an_upload_is_a_part_of_the_result_once_the_attempt_has_completed(live: Live, worker: Remote) -> None:
    job_id = await add(live, requester_id="acme")
    claim = await worker.claim()
    data = b"frames" * 100
    where = await ask(worker, claim, "out/video.mp4", bytes=len(data), content_type="video/mp4")
    assert where["key"] == key_of(job_id, 1, "out/video.mp4")
    assert (await send(live, where["whole"], data)).status_code < 300
    listing = await live.client.get(f"/v1/jobs/{job_id}/artifacts")
    assert listing.json() == {"artifacts": []}  # not yet
    assert (await live.client.get(f"/v1/jobs/{job_id}/artifacts/out/video.mp4")).status_code == 404
    digest = hashlib.sha256(data).hexdigest()
    files_told = [{"name": "out/video.mp4", "bytes": len(data), "sha256": digest}]
    assert (await worker.say("complete", claim, result={"ok": 1}, artifacts=files_told)).json()["ack"]
    (entry,) = (await live.client.get(f"/v1/jobs/{job_id}/artifacts")).json()["artifacts"]
    assert (entry["name"], entry["bytes"], entry["sha256"]) == ("out/video.mp4", len(data), digest)
    async with await live.key("acme") as owner, await live.key("other") as stranger:
        link = await owner.get(f"/v1/jobs/{job_id}/artifacts/out/video.mp4")
        assert link.status_code == 307
        assert (await stranger.get(f"/v1/jobs/{job_id}/artifacts/out/video.mp4")).status_code == 404
    async with live.bare() as client:
        assert (await client.get(link.headers["location"])).content == data


async def test_a_losing_attempt_leaves_nothing_to_be_seen(live: Live, worker: Remote) -> None:
    job_id = await add(live)
    first = await worker.claim()
    where = await ask(worker, first, "a.bin", bytes=3)
    await send(live, where["whole"], b"old")
    await worker.say("release", first)
    second = await Remote(live, "w2").claim()
    late = await worker.say("uploads", first, name="a.bin", bytes=3)
    assert (late.status_code, late.json()["code"]) == (409, "lease_lost")
    missing = await Remote(live, "w2").say("complete", second, artifacts=[{"name": "a.bin"}])
    assert (missing.status_code, missing.json()["code"]) == (409, "artifact_missing")
    where = await ask(Remote(live, "w2"), second, "a.bin", bytes=5)
    await send(live, where["whole"], b"fresh")
    wrong = await Remote(live, "w2").say("complete", second, artifacts=[{"name": "a.bin", "bytes": 9}])
    assert wrong.json()["code"] == "artifact_missing"
    assert (await Remote(live, "w2").say("complete", second, artifacts=[{"name": "a.bin"}])).json()["ack"]
    link = await live.client.get(f"/v1/jobs/{job_id}/artifacts/a.bin")
    async with live.bare() as client:
        assert (await client.get(link.headers["location"])).content == b"fresh"


async def test_a_large_file_goes_up_in_parts_that_can_be_signed_anew(
    live: Live, worker: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "PART_BYTES", 1000)
    await add(live)
    claim = await worker.claim()
    data = bytes(range(256)) * 10
    where = await ask(worker, claim, "big.bin", bytes=len(data))
    assert [part["number"] for part in where["parts"]] == [1, 2, 3]
    assert (await send(live, where["parts"][0], data[:1000])).status_code < 300
    again = await ask(worker, claim, "big.bin", bytes=len(data), upload_id=where["upload_id"], first_part=2)
    assert [part["number"] for part in again["parts"]] == [2, 3]
    for part, piece in zip(again["parts"], (data[1000:2000], data[2000:]), strict=True):
        assert (await send(live, part, piece)).status_code < 300
    whole = await worker.say("uploads/complete", claim, name="big.bin", upload_id=where["upload_id"])
    assert whole.json()["bytes"] == len(data)
    assert (await worker.say("complete", claim, artifacts=[{"name": "big.bin", "bytes": len(data)}])).json()["ack"]


async def test_inputs_are_signed_for_the_tenants_own_objects_only(live: Live, worker: Remote) -> None:
    assert live.state.objects is not None
    await live.state.objects.put("uploads/acme/1/in.txt", b"mine")
    await live.state.objects.put("uploads/other/1/in.txt", b"theirs")
    payload = {"source": "object:uploads/acme/1/in.txt", "more": ["object:uploads/other/1/in.txt", "objects"]}
    await add(live, requester_id="acme", payload=json.dumps(payload))
    claim = await worker.claim()
    assert list(claim["inputs"]) == ["object:uploads/acme/1/in.txt"]
    async with live.bare() as client:
        assert (
            await client.get(f"{live.url}{_path(claim['inputs']['object:uploads/acme/1/in.txt'])}")
        ).content == b"mine"
    source = await add(live, requester_id="acme", queue="q2")
    result = await worker.claim("q2")
    where = await ask(worker, result, "made.txt", bytes=4)
    await send(live, where["whole"], b"made")
    reference = json.dumps({"of": f"object:{where['key']}"})
    await add(live, requester_id="acme", queue="q3", payload=reference)
    assert (await worker.claim("q3"))["inputs"] == {}  # not adopted yet
    await worker.say("complete", result, artifacts=[{"name": "made.txt"}])
    await add(live, requester_id="acme", queue="q4", payload=reference)
    assert len((await worker.claim("q4"))["inputs"]) == 1
    await add(live, requester_id="other", queue="q5", payload=reference)
    assert (await worker.claim("q5"))["inputs"] == {}
    assert source


def _path(url: str) -> str:
    return url if url.startswith("/") else "/" + url.split("/", 3)[3]


async def test_an_upload_of_unsaid_length_needs_room_for_the_longest(live: Live, worker: Remote) -> None:
    await live.client.put("/v1/quotas/acme", json={"bytes": 1_000})
    await add(live, requester_id="acme")
    claim = await worker.claim()
    refusal = await worker.say("uploads", claim, name="a.bin")
    assert refusal.status_code == 429, refusal.text
    assert "quota_exceeded" in refusal.text
    assert (await worker.say("uploads", claim, name="a.bin", bytes=300)).status_code == 200
