"""The quota of bytes: space is reserved at the start of a file, settled on completion, and freed on deletion."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from callsheet.contracts.control_plane import files
from callsheet.engine.stored import RESERVATIONS
from callsheet.http import attempt_files, upload_records
from callsheet.kernel import commands
from callsheet.kernel.retry import JobError
from callsheet.objects import Objects
from tests import stores
from tests.contracts.control_plane.remote import Answer, Remote, add
from tests.http.live import Live, problem
from tests.security.site_quotas import everything, store_url

UNSAID = attempt_files.UNSAID_BYTES


@pytest.fixture(params=stores.THREE)
def url(request: pytest.FixtureRequest) -> str:
    return store_url(request.param)


@pytest.fixture
async def live(url: str, tmp_path: Path) -> AsyncIterator[Live]:
    async with everything(url, objects_url=f"file://{tmp_path}/objects") as live:
        yield live


def objects_of(live: Live) -> Objects:
    assert live.state.objects is not None
    return live.state.objects


async def limit(live: Live, count: int) -> None:
    assert (await live.client.put("/v1/quotas/acme", json={"bytes": count})).status_code == 200


async def used(live: Live) -> int:
    (one,) = (await live.client.get("/v1/quotas", params={"tenant": "acme"})).json()["quotas"]
    return int(one["used"]["bytes"])


async def claimed(live: Live, worker: Remote) -> Answer:
    await add(live, requester_id="acme")
    return await worker.claim()


async def send(live: Live, signed_url: Answer, data: bytes) -> httpx2.Response:
    async with live.bare() as client:
        return await client.request(
            signed_url["method"], signed_url["url"], headers=signed_url["headers"], content=data
        )


async def offered(worker: Remote, claim: Answer, **more: Any) -> Answer:
    answer = await worker.say("uploads", claim, **{"name": "a.bin", **more})
    assert answer.status_code == 200, answer.text
    body: Answer = answer.json()
    return body


async def keys(live: Live) -> list[str]:
    return [info.key async for info in objects_of(live).list()]


async def sweep(live: Live) -> int:
    return await attempt_files.sweep(live.state.quotas, live.engine.store, objects_of(live))


async def test_two_hundred_beginnings_at_once_do_not_pass_the_quota(live: Live, url: str, tmp_path: Path) -> None:
    """Several workers on two servers, with and without a length: the sum of reservations stays within the quota."""
    await limit(live, 3 * UNSAID + 1_000)
    async with everything(url, empty=False, objects_url=f"file://{tmp_path}/objects") as second:
        await second.state.quotas.refresh(now=True)
        workers = [Remote(one, f"w{n}") for n, one in enumerate((live, second, live, second))]
        leases = [await claimed(live, worker) for worker in workers]
        requests: list[Answer] = [{"name": f"{n}.bin", **({"bytes": 400} if n % 4 == 0 else {})} for n in range(200)]
        answers = await asyncio.gather(
            *(workers[n % 4].say("uploads", leases[n % 4], **body) for n, body in enumerate(requests))
        )
    codes = [answer.status_code for answer in answers]
    assert set(codes) == {200, 429}, codes
    begun_job = sum(body.get("bytes", UNSAID) for body, code in zip(requests, codes, strict=True) if code == 200)
    assert (begun_job, begun_job) == (await used(live), await live.state.quotas.stored_bytes("acme"))
    assert begun_job <= 3 * UNSAID + 1_000


async def test_room_of_unsaid_length_is_settled_to_what_came(live: Live) -> None:
    await limit(live, UNSAID + 100)
    worker = Remote(live)
    claim = await claimed(live, worker)
    where = await offered(worker, claim)
    assert await used(live) == UNSAID
    problem(await worker.say("uploads", claim, name="b.bin", bytes=101), 429, "quota_exceeded")
    assert (await send(live, where["whole"], b"x" * 60)).status_code == 200
    assert await used(live) == 60
    await offered(worker, claim, name="b.bin", bytes=101)
    refusal = await send(live, where["whole"], b"y" * 70)  # there is no room any more for the longest
    problem(refusal, 429, "quota_exceeded")
    assert await used(live) == 161
    response = await worker.say("complete", claim, artifacts=[{"name": "a.bin", "bytes": 60}])
    assert response.json()["ack"], response.text
    assert await used(live) == 60
    assert await keys(live) == [f"jobs/{claim['job_id']}/1/a.bin"]


async def test_a_url_for_more_keeps_its_room(live: Live) -> None:
    """Asked for again with a smaller size, the earlier URL is good for the larger one still."""
    await limit(live, 1_000)
    worker = Remote(live)
    claim = await claimed(live, worker)
    larger = await offered(worker, claim, bytes=900)
    await offered(worker, claim, bytes=1)
    assert await used(live) == 900
    assert (await send(live, larger["whole"], b"x" * 900)).status_code == 200
    problem(await worker.say("uploads", claim, name="b.bin", bytes=101), 429, "quota_exceeded")


async def test_an_upload_in_parts_is_as_long_as_it_was_begun(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PART_BYTES", 10)
    await limit(live, 100)
    worker = Remote(live)
    claim = await claimed(live, worker)
    where = await offered(worker, claim, bytes=30)
    again = {"name": "a.bin", "upload_id": where["upload_id"]}
    problem(await worker.say("uploads", claim, **again, bytes=90), 422, "validation_failed")
    problem(await worker.say("uploads", claim, **{**again, "name": "b.bin"}, bytes=30), 404, "upload_not_found")
    problem(await worker.say("uploads", claim, **{**again, "upload_id": "0" * 32}, bytes=30), 404, "upload_not_found")
    problem(await worker.say("uploads", claim, name="a.bin", bytes=101), 429, "quota_exceeded")
    for part in where["parts"]:
        assert (await send(live, part, b"0123456789")).status_code == 200
    assert (await worker.say("uploads/complete", claim, name="a.bin", upload_id=where["upload_id"])).json()[
        "bytes"
    ] == 30
    assert await used(live) == 30
    assert (await worker.say("complete", claim, artifacts=[{"name": "a.bin"}])).json()["ack"]
    assert await used(live) == 30
    assert json.loads((await live.engine.store.documents("stored_bytes", "acme"))[0].body)["parts"] == {
        "reserved": 0,
        "artifacts": 30,
    }


@pytest.mark.parametrize("end", ["dead_letter", "lose", "release"])
async def test_files_of_an_attempt_that_did_not_succeed_go(
    live: Live, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(files, "PART_BYTES", 10)
    worker = Remote(live)
    claim = await claimed(live, worker)
    for name, complete in (("whole.bin", True), ("open.bin", False)):
        where = await offered(worker, claim, name=name, bytes=20)
        for part in where["parts"]:
            await send(live, part, b"0123456789")
        if complete:
            await worker.say("uploads/complete", claim, name=name, upload_id=where["upload_id"])
    await send(live, (await offered(worker, claim, name="small.bin", bytes=5))["whole"], b"small")
    assert (await sweep(live), await used(live), len(await keys(live))) == (0, 45, 2), "a living claim's are not swept"
    job = await live.engine.get(claim["job_id"])
    moves = {
        "dead_letter": commands.dead_letter(job, JobError("broke", "it broke")),
        "lose": commands.lose_lease(job, rand=0.5),
        "release": commands.release(job),
    }
    far = await live.engine.store.now() + 10**9
    await live.engine.store.settle([moves[end]], now=far)
    assert await used(live) == 45, "what is not swept yet counts"
    assert (await sweep(live), await used(live), await keys(live)) == (1, 0, [])
    problem(await send(live, where["parts"][0], b"0123456789"), 404, "upload_not_found")
    assert await live.engine.store.documents(attempt_files.KIND) == []


async def test_an_attempt_that_is_over_takes_nothing_of_its_successor(live: Live) -> None:
    worker = Remote(live)
    first = await claimed(live, worker)
    await send(live, (await offered(worker, first, bytes=3))["whole"], b"old")
    await worker.say("release", first)
    second = await Remote(live, "w2").claim()
    where = await offered(Remote(live, "w2"), second, bytes=5)
    await send(live, where["whole"], b"fresh")
    assert (await sweep(live), await used(live)) == (1, 5)
    assert (await Remote(live, "w2").say("complete", second, artifacts=[{"name": "a.bin"}])).json()["ack"]
    assert (await sweep(live), await used(live)) == (0, 5)
    assert await objects_of(live).get(where["key"]) == b"fresh"


async def test_a_name_that_is_none_reserves_nothing(live: Live) -> None:
    worker = Remote(live)
    claim = await claimed(live, worker)
    for name in ("../a", "a//b", "a/../b", "x\u0000"):
        problem(await worker.say("uploads", claim, name=name, bytes=5), 422, "invalid_key")
    assert await used(live) == 0


async def test_of_many_who_sweep_one_counts(live: Live) -> None:
    worker = Remote(live)
    claim = await claimed(live, worker)
    await offered(worker, claim, bytes=500)
    await live.state.quotas.add("acme", 3_000, RESERVATIONS)  # of other attempts
    await worker.say("release", claim)
    await asyncio.gather(*(sweep(live) for _ in range(5)))
    assert await used(live) == 3_000


async def test_an_attempt_has_so_many_files(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt_files, "MOST_FILES", 2)
    worker = Remote(live)
    claim = await claimed(live, worker)
    for name in ("a", "b", "a"):
        await offered(worker, claim, name=name, bytes=1)
    problem(await worker.say("uploads", claim, name="c", bytes=1), 409, "refused")
    assert await used(live) == 2


async def test_a_short_file_does_not_free_the_room_of_a_longer_one_under_way(live: Live) -> None:
    """Two URLs for one name: the longer request may end after the shorter one was settled."""
    worker = Remote(live)
    claim = await claimed(live, worker)
    sized, unsaid = await offered(worker, claim, bytes=1_000), await offered(worker, claim)
    assert (await send(live, unsaid["whole"], b"x")).status_code == 200
    assert await used(live) == 1_000
    assert (await send(live, sized["whole"], b"y" * 1_000)).status_code == 200
    assert await used(live) == 1_000


async def test_a_newer_upload_keeps_its_room_when_an_older_one_is_completed(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "PART_BYTES", 1_000)
    worker = Remote(live)
    claim = await claimed(live, worker)
    first = await offered(worker, claim, bytes=1_500)
    for part, size in zip(first["parts"], (1_000, 500), strict=True):
        assert (await send(live, part, b"x" * size)).status_code == 200
    objects, complete, second = objects_of(live), objects_of(live).complete_multipart, []

    async def begin_another(*args: Any, **options: Any) -> Any:
        info = await complete(*args, **options)
        second.append(await offered(worker, claim, bytes=1_200))  # after the object is there, before that is noted
        return info

    monkeypatch.setattr(objects, "complete_multipart", begin_another)
    response = await worker.say("uploads/complete", claim, name="a.bin", upload_id=first["upload_id"])
    assert response.status_code == 200, response.text
    assert await used(live) == 1_500 + 1_200


@pytest.mark.parametrize("first", ["complete", "drop"])
async def test_an_upload_is_completed_or_dropped_and_counted_as_that(
    live: Live, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """Concurrent calls: the first decides, and the count matches stored files."""
    size = upload_records.PART_BYTES + 10
    body = (await live.client.post("/v1/uploads", json={"name": "a.bin", "size": size})).json()
    path = f"/v1/uploads/{body['upload_id']}"
    for part, length in zip(body["todo"], (upload_records.PART_BYTES, 10), strict=True):
        assert (await send(live, part, b"x" * length)).status_code == 200
    before, objects = await live.state.quotas.stored_bytes(""), objects_of(live)
    verb = "abort_multipart" if first == "drop" else "complete_multipart"
    real, answers = getattr(objects, verb), []

    async def meanwhile(*args: Any, **options: Any) -> Any:
        outcome = await real(*args, **options) if first == "complete" else None
        monkeypatch.undo()
        other = live.client.delete(path) if first == "complete" else live.client.post(f"{path}/complete")
        answers.append((await other).status_code)
        return outcome if first == "complete" else await real(*args, **options)

    monkeypatch.setattr(objects, verb, meanwhile)
    mine = await (live.client.post(f"{path}/complete") if first == "complete" else live.client.delete(path))
    is_there = body["key"] in await keys(live)
    assert await live.state.quotas.stored_bytes("") == (before if is_there else before - size)
    assert (mine.status_code, answers[0], is_there) in {(404, 204, False), (204, 404, False)}
