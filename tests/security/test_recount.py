"""The recount: counts that drifted are set right by a walk of bounded steps, and what retention forgets goes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from callsheet.contracts.control_plane import files
from callsheet.engine.quotas import Quotas
from callsheet.engine.stored import ARTIFACTS, OUTPUTS, UPLOADS
from callsheet.http import maintenance
from callsheet.http.maintenance import EVERY_MS, Recount
from callsheet.http.object_access import OwnerLookup
from callsheet.objects import Objects
from callsheet.store.protocol import ClaimRequest
from tests import stores
from tests.contracts.control_plane.remote import Remote, add
from tests.http.live import Live
from tests.security.site_quotas import everything, store_url

LATER = 3_600_000


@pytest.fixture(params=stores.THREE)
def url(request: pytest.FixtureRequest) -> str:
    return store_url(request.param)


@pytest.fixture
async def live(url: str, tmp_path: Path) -> AsyncIterator[Live]:
    async with everything(url, objects_url=f"file://{tmp_path}/objects") as live:
        await live.engine.store.delete_document(maintenance.KIND, maintenance.ID)
        yield live


def objects_of(live: Live) -> Objects:
    assert live.state.objects is not None
    return live.state.objects


def walker(live: Live) -> Recount:
    return Recount(live.state.quotas, live.engine.store, objects_of(live), OwnerLookup(live.state))


async def walked(live: Live, now: int | None = None) -> int:
    """Do one walk; return the number of steps. Every existing file is old enough."""
    now = await live.engine.store.now() + LATER if now is None else now
    steps = 1
    await walker(live).step(now)
    while not await walker(live).step(now):
        steps += 1
    return steps + 1


async def parts(live: Live, tenant: str = "acme") -> dict[str, int]:
    parts = (await live.state.quotas.bytes.of(tenant)).parts
    return {part: count for part, count in parts.items() if count}


async def test_a_count_that_drifted_is_set_right(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "KEYS", 2)
    objects, quotas = objects_of(live), live.state.quotas
    for n in range(5):
        await objects.put(f"outputs/acme/{n}", b"x" * 100)  # and whoever wrote it died before it was counted
    await objects.put("outputs/odd name/1", b"x")  # of nobody: tenants with such names have another folder
    await quotas.add("acme", 7_000, UPLOADS)  # of files that an operator removed by hand
    await quotas.add("other", 50, OUTPUTS)
    assert await walked(live) == 5
    assert (await parts(live), await parts(live, "other")) == ({OUTPUTS: 500}, {})
    now = await live.engine.store.now()
    await walker(live).step(now + LATER + 1)
    assert json.loads((await live.engine.store.documents(maintenance.KIND))[0].body)["ended_at"], "not again so soon"
    await objects.delete("outputs/acme/0")
    assert await walked(live, now + LATER + EVERY_MS) == 4
    assert await parts(live) == {OUTPUTS: 400}


async def test_what_is_shown_is_what_is_enforced(live: Live) -> None:
    await live.client.put("/v1/quotas/acme", json={"bytes": 1_000})
    await objects_of(live).put("outputs/acme/1", b"x" * 600)
    await walked(live)
    async with await live.key("acme") as acme:
        assert (await acme.get("/v1/quotas")).json()["quotas"][0]["used"]["bytes"] == 600
        refusal = await acme.post("/v1/uploads", json={"name": "a", "size": 401})
        assert (refusal.status_code, refusal.json()["used"], refusal.json()["limit"]) == (429, 600, 1_000)
        assert (await acme.post("/v1/uploads", json={"name": "a", "size": 400})).status_code == 201
    assert await Quotas(live.engine.store, None).stored_bytes("acme") == 1_000


async def test_open_uploads_and_attempts_are_counted_as_they_are_promised(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "PART_BYTES", 20)
    async with await live.key("acme") as acme:
        await acme.post("/v1/uploads", json={"name": "a", "size": 300})
    await add(live, requester_id="acme")
    worker = Remote(live)
    claim = await worker.claim()
    where = (await worker.say("uploads", claim, name="b.bin", bytes=40)).json()
    async with live.bare() as client:
        for part in where["parts"]:
            await client.request(part["method"], part["url"], headers=part["headers"], content=b"x" * 20)
    whole = await worker.say("uploads/complete", claim, name="b.bin", upload_id=where["upload_id"])
    assert whole.json()["bytes"] == 40, "it is there already, and is reserved still"
    before = await parts(live)
    await walked(live)
    assert await parts(live) == before == {"uploads": 300, "reserved": 40}
    await worker.say("complete", claim, artifacts=[{"name": "b.bin"}])
    await walked(live, await live.engine.store.now() + LATER + EVERY_MS)
    assert await parts(live) == {"uploads": 300, "artifacts": 40}


async def test_what_changes_during_a_walk_leaves_too_much_counted_never_too_little(live: Live) -> None:
    """A tenant that deletes and writes during the recount gains nothing."""
    objects, quotas = objects_of(live), live.state.quotas
    await objects.put("outputs/acme/1", b"x" * 100)
    await quotas.add("acme", 100, OUTPUTS)
    now = await live.engine.store.now() + LATER
    await walker(live).step(now)
    await objects.delete("outputs/acme/1")
    await quotas.add("acme", -100, OUTPUTS)
    await objects.put("outputs/acme/2", b"x" * 90)
    await quotas.add("acme", 90, OUTPUTS)
    while not await walker(live).step(now):
        pass
    assert (await parts(live)).get(OUTPUTS, 0) >= 90


async def test_what_may_have_come_since_is_in_doubt(live: Live) -> None:
    """The clocks of store and storage differ: an object of about now is neither missed nor found too much."""
    await objects_of(live).put("outputs/acme/1", b"x" * 100)
    await live.state.quotas.add("acme", 100, OUTPUTS)
    await objects_of(live).put("outputs/other/1", b"x" * 100)
    now = await live.engine.store.now()
    await walked(live, now)
    assert (await parts(live), await parts(live, "other")) == ({OUTPUTS: 100}, {})


async def test_a_file_that_is_just_beginning_is_not_counted_out(live: Live) -> None:
    await live.state.quotas.charge("acme", 900)  # and its upload is not written down yet
    await walked(live, await live.engine.store.now() + 1)
    assert await parts(live) == {UPLOADS: 900}


async def test_processes_share_one_walk(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "KEYS", 3)
    for n in range(20):
        await objects_of(live).put(f"outputs/acme/{n:02}", b"x" * 10)
    now = await live.engine.store.now() + LATER
    walkers = [walker(live) for _ in range(4)]
    end_count = 0
    while not end_count:
        end_count = sum(await asyncio.gather(*(one.step(now) for one in walkers)))
    assert (end_count, await parts(live)) == (1, {OUTPUTS: 200})


@pytest.mark.parametrize("tenant", ["acme", ""])
async def test_files_of_a_job_that_retention_deleted_go_and_no_others(live: Live, tenant: str) -> None:
    store, objects = live.engine.store, objects_of(live)
    jobs = [await add(live, requester_id=tenant) for _ in range(2)]
    stranger = "0199f0c2-7f7a-7d51-b3cd-0d52b5f0f5b1"  # a job of another store that shares the storage
    await objects.put(f"jobs/{stranger}/1/a.bin", b"theirs")
    worker = Remote(live)
    for _ in jobs:
        claim = await worker.claim()
        where = (await worker.say("uploads", claim, name="a.bin", bytes=40)).json()["whole"]
        async with live.bare() as client:
            await client.request(where["method"], where["url"], headers=where["headers"], content=b"x" * 40)
        assert (await worker.say("complete", claim, artifacts=[{"name": "a.bin"}])).json()["ack"]
    assert await parts(live, tenant) == {ARTIFACTS: 80}
    await store.delete([(await live.engine.get(jobs[0])).claim])
    await walked(live)
    left = [info.key async for info in objects.list("jobs")]
    assert sorted(left) == sorted([f"jobs/{jobs[1]}/1/a.bin", f"jobs/{stranger}/1/a.bin"])
    assert await parts(live, tenant) == {ARTIFACTS: 40}
    assert await live.engine.claim(ClaimRequest("w")) == []
