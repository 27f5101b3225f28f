"""Completed files never change: a signed URL that comes later, or from somebody shut out, changes nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from callsheet.http import object_access, upload_records
from callsheet.kernel import commands
from callsheet.kernel.job import Status
from callsheet.objects import Objects
from callsheet.objects.folders import INCOMING
from callsheet.store.protocol import Document
from tests import stores
from tests.contracts.control_plane.remote import Answer, Remote, add
from tests.http.conftest import url  # noqa: F401 - a fixture
from tests.http.live import Live, problem, serving
from tests.seaweed import ADMIN, BUCKET, REGION, s3_server
from tests.security.of_objects import ROUTERS

FIRST, LATER = b"first", b"later"


@pytest.fixture
async def live(url: str, tmp_path: Path) -> AsyncIterator[Live]:  # noqa: F811
    async with serving(url, routers=ROUTERS, objects_url=f"file://{tmp_path}/objects") as live:
        await stores.empty({url: live.engine.store})
        yield live


@pytest.fixture
async def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Live]:
    """A server whose URLs lead to a storage that asks nobody."""
    monkeypatch.setenv("S3_ENDPOINT", s3_server().endpoint)
    monkeypatch.setenv("S3_REGION", REGION)
    monkeypatch.setenv("S3_ACCESS_KEY_ID", ADMIN.access_key_id)
    monkeypatch.setenv("S3_SECRET_ACCESS_KEY", ADMIN.secret_access_key)
    kept = f"s3://{BUCKET}/{tmp_path.name}-{time.time_ns()}"
    async with serving(stores.fresh_url("sqlite"), routers=ROUTERS, objects_url=kept) as live:
        yield live


def objects_of(live: Live) -> Objects:
    assert live.state.objects is not None
    return live.state.objects


async def send(live: Live, signed_url: Answer, data: bytes) -> httpx2.Response:
    async with live.bare() as client:
        return await client.request(
            signed_url["method"], signed_url["url"], headers=signed_url["headers"], content=data
        )


async def begun(client: httpx2.AsyncClient) -> tuple[str, dict[str, Any]]:
    upload = (await client.post("/v1/uploads", json={"name": "a.bin", "size": 5})).json()
    return f"/v1/uploads/{upload['upload_id']}", upload


async def left(live: Live) -> list[str]:
    return [info.key async for info in objects_of(live).list(INCOMING)]


async def test_a_completed_upload_is_sealed(live: Live) -> None:
    async with await live.key("acme") as acme:
        path, upload = await begun(acme)
        assert (await send(live, upload["todo"][0], FIRST)).status_code == 200
        assert not await objects_of(live).exists(upload["key"]), "nothing is there before it is completed"
        assert (await acme.post(f"{path}/complete")).json()["key"] == upload["key"]
        problem(await send(live, upload["todo"][0], LATER), 403, "link_refused")
        assert await objects_of(live).get(upload["key"]) == FIRST
        assert (await acme.post(f"{path}/complete")).status_code == 200
    assert await left(live) == []


async def test_a_url_is_refused_after_a_drop_and_leaves_no_orphan(live: Live) -> None:
    async with await live.key("acme") as acme:
        path, upload = await begun(acme)
        await send(live, upload["todo"][0], FIRST)
        assert (await acme.delete(path)).status_code == 204
        problem(await send(live, upload["todo"][0], LATER), 403, "link_refused")
    assert [info.key async for info in objects_of(live).list()] == []


async def test_an_expired_upload_takes_nothing(live: Live) -> None:
    async with await live.key("acme") as acme:
        path, upload = await begun(acme)
        store = live.engine.store
        (document,) = await store.documents(upload_records.KIND, path.rpartition("/")[2])
        body = document.body.replace(f'"expires_at": {upload["expires_at"]}', '"expires_at": 1')
        await store.put_document(Document(document.kind, document.id, body, document.version))
        problem(await send(live, upload["todo"][0], FIRST), 403, "link_refused")


async def test_a_body_that_was_under_way_at_the_completion_does_not_count(live: Live) -> None:
    """A check before the upload is not enough: a slow one ends when the upload is sealed."""
    async with await live.key("acme") as acme, live.bare() as client:
        path, upload = await begun(acme)
        await send(live, upload["todo"][0], FIRST)
        begins, goes_on = asyncio.Event(), asyncio.Event()

        async def slowly() -> AsyncIterator[bytes]:
            yield LATER[:2]
            begins.set()
            await goes_on.wait()
            yield LATER[2:]

        todo = upload["todo"][0]
        headers = {**todo["headers"], "content-length": "5"}
        late = asyncio.create_task(client.put(f"{live.url}{todo['url']}", headers=headers, content=slowly()))
        await begins.wait()
        assert (await acme.post(f"{path}/complete")).status_code == 200
        goes_on.set()
        problem(await late, 403, "link_refused")
        assert await objects_of(live).get(upload["key"]) == FIRST
    assert await left(live) == []


async def test_a_url_of_one_upload_writes_for_no_other(live: Live) -> None:
    async with await live.key("acme") as acme:
        _, first = await begun(acme)
        _, second = await begun(acme)
        url = first["todo"][0]["url"].replace(first["upload_id"], second["upload_id"])
        problem(await send(live, {**first["todo"][0], "url": url}, FIRST), 403, "link_refused")
    bare = await objects_of(live).sign_put("uploads/acme/x/a.bin", 60)
    answer = await send(live, {"method": "PUT", "url": bare.url, "headers": {}}, FIRST)
    problem(answer, 403, "link_refused")


async def offered(worker: Remote, claim: Answer, name: str = "a.bin") -> Answer:
    answer = await worker.say("uploads", claim, name=name, bytes=5)
    assert answer.status_code == 200, answer.text
    body: Answer = answer.json()
    return body


async def test_an_adopted_artifact_is_sealed(live: Live) -> None:
    job_id, worker = await add(live, requester_id="acme"), Remote(live)
    claim = await worker.claim()
    where = await offered(worker, claim)
    assert (await send(live, where["whole"], FIRST)).status_code == 200
    assert (await worker.say("complete", claim, artifacts=[{"name": "a.bin", "bytes": 5}])).json()["ack"]
    problem(await send(live, where["whole"], LATER), 403, "link_refused")
    link = await live.client.get(f"/v1/jobs/{job_id}/artifacts/a.bin")
    async with live.bare() as client:
        assert (await client.get(link.headers["location"])).content == FIRST
    assert where["key"] == f"jobs/{job_id}/1/a.bin"
    assert await left(live) == []


async def test_an_attempt_that_is_over_uploads_nothing(live: Live) -> None:
    await add(live)
    worker = Remote(live)
    claim = await worker.claim()
    where = await offered(worker, claim)
    await worker.say("release", claim)
    problem(await send(live, where["whole"], LATER), 403, "link_refused")
    assert [info.key async for info in objects_of(live).list()] == []


async def test_a_revoked_worker_uploads_nothing(live: Live) -> None:
    enrolment = (await live.client.post("/v1/workers/enrolments", json={})).json()["enrolment_token"]
    async with live.bare() as client:
        body = {"enrolment_token": enrolment, "worker_name": "gpu"}
        enrolled = (await client.post("/internal/worker/enroll", json=body)).json()
        client.headers["Authorization"] = f"Bearer {enrolled['worker_token']}"
        await add(live)
        worker = Remote(live._replace(client=client), enrolled["worker_id"])
        claim = await worker.claim()
        where = await offered(worker, claim)
        assert (await send(live, where["whole"], FIRST)).status_code == 200
        assert (await live.client.delete(f"/v1/workers/{enrolled['worker_id']}")).status_code == 200
        assert (await live.engine.get(claim["job_id"])).status is Status.RUNNING, "its lease runs out later"
        problem(await send(live, where["whole"], LATER), 403, "link_refused")


async def test_a_file_of_parts_is_put_together_once(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    from callsheet.contracts.control_plane import files  # noqa: PLC0415

    monkeypatch.setattr(files, "PART_BYTES", 3)
    await add(live)
    worker = Remote(live)
    claim = await worker.claim()
    for data, status in ((FIRST, 200), (LATER, 409)):
        where = await offered(worker, claim)
        for part, piece in zip(where["parts"], (data[:3], data[3:]), strict=True):
            assert (await send(live, part, piece)).status_code == 200
        response = await worker.say("uploads/complete", claim, name="a.bin", upload_id=where["upload_id"])
        assert response.status_code == status, response.text
    await worker.say("release", claim)
    assert (await send(live, where["parts"][0], LATER[:3])).status_code == 403
    assert await objects_of(live).get(where["key"]) == FIRST


async def test_what_was_changed_after_its_adoption_is_not_given_out(live: Live) -> None:
    job_id, worker = await add(live), Remote(live)
    claim = await worker.claim()
    where = await offered(worker, claim)
    await send(live, where["whole"], FIRST)
    await worker.say("complete", claim, artifacts=[{"name": "a.bin"}])
    await objects_of(live).put(where["key"], b"another length")
    problem(await live.client.get(f"/v1/jobs/{job_id}/artifacts/a.bin"), 412, "object_changed")


async def test_the_sweep_removes_what_waits_for_nobody(live: Live) -> None:
    objects, store = objects_of(live), live.engine.store
    async with await live.key("acme") as acme:
        _, upload = await begun(acme)
        await send(live, upload["todo"][0], FIRST)
        await add(live)
        worker = Remote(live)
        claim = await worker.claim()
        await send(live, (await offered(worker, claim))["whole"], FIRST)
        orphans = (
            object_access.key_of(object_access.of_upload("0199f0c2-7f7a-7d51-b3cd-0d52b5f0f5b1"), "a"),
            object_access.key_of(object_access.of_attempt(claim["job_id"], 7, ""), "a/b"),
            f"{INCOMING}/odd",
        )
        for key in orphans:
            await objects.put(key, LATER)
        assert await object_access.sweep(store, objects) == len(orphans)
        assert len(await left(live)) == 2
        job = await live.engine.get(claim["job_id"])
        await live.engine.settle([commands.release(job)])
        assert await object_access.sweep(store, objects) == 1
        assert (await acme.post(f"/v1/uploads/{upload['upload_id']}/complete")).status_code == 200
        assert await objects.get(upload["key"]) == FIRST


async def test_a_storage_that_asks_nobody_is_written_to_in_vain(s3: Live) -> None:
    async with await s3.key("acme") as acme:
        path, upload = await begun(acme)
        assert (await send(s3, upload["todo"][0], FIRST)).status_code == 200
        assert (await acme.post(f"{path}/complete")).status_code == 200
        assert (await send(s3, upload["todo"][0], LATER)).status_code == 200, "its URL cannot be recalled"
        assert await objects_of(s3).get(upload["key"]) == FIRST
        dropped, other = await begun(acme)
        assert (await acme.delete(dropped)).status_code == 204
        await send(s3, other["todo"][0], LATER)
    job_id, worker = await add(s3), Remote(s3)
    claim = await worker.claim()
    where = await offered(worker, claim)
    await send(s3, where["whole"], FIRST)
    assert (await worker.say("complete", claim, artifacts=[{"name": "a.bin"}])).json()["ack"]
    await send(s3, where["whole"], LATER)
    assert await objects_of(s3).get(where["key"]) == FIRST
    late = await left(s3)  # this S3 clears away folders that were empty a while ago, now and then with what came since
    assert any(key.startswith(f"{INCOMING}/jobs/{job_id}/") for key in late)
    await object_access.sweep(s3.engine.store, objects_of(s3))
    assert await left(s3) == []
    await objects_of(s3).put(where["key"], LATER)
    problem(await s3.client.get(f"/v1/jobs/{job_id}/artifacts/a.bin"), 412, "object_changed")
