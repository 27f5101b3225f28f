"""Files to a real server that keeps them in a folder: through cuts, after a new start, and when the storage refuses."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from callsheet.api import objects as object_routes
from callsheet.api import uploads
from callsheet.client import Client, Forbidden, NotFound, SyncClient, UnexpectedAnswer, Upload
from callsheet.http import upload_records
from callsheet.kernel.errors import InvalidInput
from tests import stores
from tests.client.conftest import QUICK
from tests.client.proxy import before
from tests.client.scripted import Answer, problem, scripted, told
from tests.http.live import ADMIN, Live, serving

MEBIBYTE = 1024 * 1024
DATA = hashlib.shake_128(b"film").digest(3 * MEBIBYTE + 77)
IMPATIENT = QUICK._replace(retry_for_s=0.05)


class Left(Exception):
    """The process ends here."""


@pytest.fixture
async def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Live]:
    """A server whose parts have a mebibyte."""
    monkeypatch.setattr(upload_records, "PART_BYTES", MEBIBYTE)
    url = f"file://{tmp_path / 'objects'}"
    routers = [object_routes.router, uploads.router]
    async with serving(stores.fresh_url("sqlite"), routers=routers, objects_url=url) as live:
        yield live


@pytest.fixture
def film(tmp_path: Path) -> Path:
    path = tmp_path / "film.mp4"
    path.write_bytes(DATA)
    return path


async def kept(live: Live, upload: Upload) -> bytes:
    assert live.state.objects is not None
    return await live.state.objects.get(upload.key)


def an_upload(url: str, *, received: int = 0, size: int = 3) -> Answer:
    """A server's word of an upload of one part."""
    part = {"offset": 0, "size": size, "method": "PUT", "url": url, "headers": {"content-type": "video/mp4"}}
    about = {"upload_id": "u", "key": "uploads/u/a", "name": "a", "size": size, "received": received, "status": "open"}
    return told({**about, "todo": [part] if received < size else []})


@pytest.mark.parametrize("size", [0, 1, MEBIBYTE, len(DATA)])
async def test_a_file_arrives_whole(live: Live, film: Path, size: int) -> None:
    film.write_bytes(DATA[:size])
    seen: list[int] = []
    async with Client(live.url, ADMIN, patience=QUICK) as client:
        upload = await client.upload(film, on_progress=lambda now: seen.append(now.received))
    assert (upload.status, upload.name, upload.size, upload.received, upload.todo) == (
        "done",
        "film.mp4",
        size,
        size,
        (),
    )
    assert await kept(live, upload) == DATA[:size]
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == (0, size)


async def test_a_cut_in_the_middle_costs_one_part(live: Live, film: Path) -> None:
    seen: list[int] = []
    async with before(live.url) as proxy, Client(proxy.url, ADMIN, patience=QUICK) as client:

        def cut_once(now: Upload) -> None:
            if not proxy.cuts and now.received > 1.5 * MEBIBYTE:
                proxy.cut_all()
                seen.clear()
            seen.append(now.received)

        upload = await client.upload(film, on_progress=cut_once)
        assert proxy.cuts
    assert await kept(live, upload) == DATA
    assert min(seen) == MEBIBYTE, "the first part was there, and was not sent again"


async def test_another_process_goes_on_with_the_id(live: Live, film: Path) -> None:
    begun: list[Upload] = []

    def leave(now: Upload) -> None:
        begun.append(now)
        if now.received > MEBIBYTE:
            raise Left

    seen: list[int] = []
    async with Client(live.url, ADMIN, patience=QUICK) as client:
        with pytest.raises(Left):
            await client.upload(film, on_progress=leave)
        first = begun[0].upload_id
    async with Client(live.url, ADMIN, patience=QUICK) as client:
        upload = await client.upload(film, upload_id=first, on_progress=lambda now: seen.append(now.received))
        assert await client.upload(film, upload_id=first) == upload, "a second time gives the same"
    assert (upload.upload_id, seen[0]) == (first, MEBIBYTE)
    assert await kept(live, upload) == DATA


async def test_another_file_does_not_go_on_with_it(live: Live, film: Path) -> None:
    begun: list[Upload] = []
    async with Client(live.url, ADMIN, patience=QUICK) as client:

        def shorten(now: Upload) -> None:
            begun.append(now)
            film.write_bytes(DATA[:7])

        with pytest.raises(InvalidInput, match="shorter"):
            await client.upload(film, on_progress=shorten)
        with pytest.raises(InvalidInput, match=rf"7 bytes.*{len(DATA)}"):
            await client.upload(film, upload_id=begun[0].upload_id)
        with pytest.raises(NotFound, match="upload_not_found"):
            await client.upload(film, upload_id="no-such")


async def test_without_async_too(live: Live, film: Path) -> None:
    with SyncClient(live.url, ADMIN, patience=QUICK) as client:
        upload = await asyncio.to_thread(client.upload, film)
    assert await kept(live, upload) == DATA


async def test_the_storage_gets_the_part_and_not_the_key(film: Path) -> None:
    film.write_bytes(b"abc")
    async with scripted(Answer()) as storage:
        url = f"{storage.url}/bucket/a?signature=s"
        answers = an_upload(url), an_upload(url, received=3), an_upload(url, received=3)
        async with scripted(*answers) as server, Client(server.url, ADMIN, patience=QUICK) as client:
            await client.upload(film)
    (request,) = storage.asked
    assert (request.method, request.path, request.body) == ("PUT", "/bucket/a?signature=s", b"abc")
    assert request.headers["content-type"] == "video/mp4"
    assert "authorization" not in request.headers
    assert "transfer-encoding" not in request.headers
    assert [asked.path for asked in server.asked] == ["/v1/uploads", "/v1/uploads/u", "/v1/uploads/u/complete"]


async def test_a_url_that_expired_is_replaced_by_a_fresh_one(film: Path) -> None:
    film.write_bytes(b"abc")
    async with scripted(problem(403, "objects_forbidden"), Answer()) as storage:
        old, fresh = f"{storage.url}/old", f"{storage.url}/fresh"
        answers = an_upload(old), an_upload(fresh), an_upload(fresh, received=3)
        async with scripted(*answers) as server, Client(server.url, ADMIN, patience=QUICK) as client:
            await client.upload(film)
    assert [request.path for request in storage.asked] == ["/old", "/fresh"]


@pytest.mark.parametrize(("answer", "error"), [(problem(403, "no"), Forbidden), (Answer(), UnexpectedAnswer)])
async def test_a_storage_that_never_keeps_a_part_is_told_of(film: Path, answer: Answer, error: type[Exception]) -> None:
    film.write_bytes(b"abc")
    async with (
        scripted(answer) as storage,
        scripted(an_upload(f"{storage.url}/a")) as server,
        Client(server.url, ADMIN, patience=IMPATIENT) as client,
    ):
        with pytest.raises(error):
            await client.upload(film)
    assert len(storage.asked) > 1
