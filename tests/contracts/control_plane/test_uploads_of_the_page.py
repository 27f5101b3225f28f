"""The uploads of `docs/contracts/control-plane.md`: its example is run as it stands, and its table of answers holds."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from callsheet.api import objects, quotas, uploads
from callsheet.contracts.control_plane import files, routes
from tests import stores
from tests.http.live import ADMIN as KEY
from tests.http.live import Live, serving
from tests.seaweed import ADMIN, BUCKET, REGION, s3_server

from .remote import Answer, Remote, add

PAGE = Path(__file__).parents[3] / "docs" / "contracts" / "control-plane.md"
EXAMPLE = re.compile(r"^```python\n(# upload\.py\n.*?)^```$", re.DOTALL | re.MULTILINE)
ROUTERS = [routes.router, files.worker_router, files.router, objects.router, uploads.router, quotas.router]
SMALLEST_PART = 5 * 1024 * 1024  # of an S3


@pytest.fixture(params=["folder", "s3"])
async def live(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Live]:
    kept_in = f"file://{tmp_path}/objects"
    monkeypatch.setattr(files, "PART_BYTES", 1000)
    if request.param == "s3":
        monkeypatch.setenv("S3_ENDPOINT", s3_server().endpoint)
        monkeypatch.setenv("S3_ACCESS_KEY_ID", ADMIN.access_key_id)
        monkeypatch.setenv("S3_SECRET_ACCESS_KEY", ADMIN.secret_access_key)
        monkeypatch.setenv("S3_REGION", REGION)
        kept_in = f"s3://{BUCKET}/{uuid.uuid4().hex}"
        monkeypatch.setattr(files, "PART_BYTES", SMALLEST_PART)
    monkeypatch.setattr(files, "MOST_PARTS", 2)  # signed in one answer, so that three parts take two
    async with serving(stores.fresh_url("sqlite"), routers=ROUTERS, objects_url=kept_in) as live:
        yield live


async def run_example(live: Live, tmp_path: Path, *paths: Path) -> str:
    """What the example of the page prints. It runs apart from the server, and knows nothing of Callsheet."""
    (matches,) = EXAMPLE.findall(PAGE.read_text("utf-8"))
    (tmp_path / "upload.py").write_text(matches, "utf-8")
    environment = {"CALLSHEET_URL": live.url, "CALLSHEET_TOKEN": KEY, "CALLSHEET_STREAMS": "default"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", str(tmp_path / "upload.py"), *map(str, paths)),
        env={"PATH": os.environ["PATH"], **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, err.decode()
    return out.decode()


async def test_the_example_of_the_page_uploads_a_small_and_a_large_file(live: Live, tmp_path: Path) -> None:
    job_id = await add(live, requester_id="acme")
    small, large = tmp_path / "small.txt", tmp_path / "large.bin"
    small.write_bytes(b"a few words")
    large.write_bytes(os.urandom(2 * files.PART_BYTES + 7))
    assert "'ack': True" in await run_example(live, tmp_path, small, large)
    listing = (await live.client.get(f"/v1/jobs/{job_id}/artifacts")).json()["artifacts"]
    kept = {file["name"]: (file["bytes"], file["sha256"]) for file in listing}
    assert kept == {
        f"out/{path.name}": (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in (small, large)
    }
    async with live.bare() as client:
        for path in (small, large):
            link = await live.client.get(f"/v1/jobs/{job_id}/artifacts/out/{path.name}")
            assert (await client.get(link.headers["location"])).content == path.read_bytes()


async def send(live: Live, signed_url: Answer, data: bytes) -> httpx2.Response:
    async with live.bare() as client:
        return await client.request(
            signed_url["method"], signed_url["url"], headers=signed_url["headers"], content=data
        )


def told(answer: httpx2.Response) -> tuple[int, Any]:
    return answer.status_code, answer.json()["code"]


async def test_the_answers_are_those_of_the_page(live: Live) -> None:
    worker, size = Remote(live), 2 * files.PART_BYTES + 7
    await live.client.put("/v1/quotas/acme", json={"bytes": 10 * size})
    await add(live, requester_id="acme")
    claim = await worker.claim()
    assert told(await worker.say("uploads", claim, name="a/../b", bytes=3)) == (422, "invalid_key")
    assert told(await worker.say("uploads", claim, name="", bytes=3)) == (422, "validation_failed")
    assert told(await worker.say("uploads", claim, name="a", upload_id="u")) == (422, "validation_failed")
    assert told(await worker.say("uploads", claim, name="a", bytes=11 * size)) == (429, "quota_exceeded")
    assert told(await worker.say("uploads", claim, name="a")) == (429, "quota_exceeded")
    begun = (await worker.say("uploads", claim, name="a", bytes=size)).json()
    data = os.urandom(size)
    pieces = [data[at : at + files.PART_BYTES] for at in range(0, size, files.PART_BYTES)]
    assert [part["number"] for part in begun["parts"]] == [1, 2]
    anew = {"name": "a", "bytes": size, "upload_id": begun["upload_id"], "first_part": 3}
    (last,) = (await worker.say("uploads", claim, **anew)).json()["parts"]
    assert (await send(live, begun["parts"][0], pieces[0])).status_code < 300
    assert (await send(live, last, pieces[2])).status_code < 300
    whole = {"name": "a", "upload_id": begun["upload_id"]}
    assert told(await worker.say("uploads/complete", claim, **whole)) == (409, "upload_incomplete")
    assert (await send(live, begun["parts"][1], pieces[1])).status_code < 300
    assert (await worker.say("uploads/complete", claim, **whole)).json()["bytes"] == size
    again = await worker.say("uploads/complete", claim, **whole)
    assert told(again) in {(404, "upload_not_found"), (409, "object_exists")}
    assert told(await worker.say("complete", claim, artifacts=[{"name": "b"}])) == (409, "artifact_missing")
    assert told(await worker.say("complete", claim, artifacts=[{"name": "a", "bytes": 1}])) == (409, "artifact_missing")
    small = (await worker.say("uploads", claim, name="c", bytes=3)).json()["whole"]
    assert (await worker.say("complete", claim, artifacts=[{"name": "a", "bytes": size}])).json()["ack"]
    if small["url"].startswith("/"):  # an S3 knows nothing of attempts; what comes late there is seen by nobody
        assert told(await send(live, small, b"abc")) == (403, "link_refused")
    assert told(await worker.say("uploads", claim, name="c", bytes=3)) == (409, "lease_lost")


async def test_a_server_without_objects_says_so() -> None:
    async with serving(stores.fresh_url("sqlite"), routers=ROUTERS) as live:
        await add(live)
        claim = await Remote(live).claim()
        assert told(await Remote(live).say("uploads", claim, name="a", bytes=1)) == (404, "not_found")
