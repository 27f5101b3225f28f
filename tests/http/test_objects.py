"""Signed URLs of our own server, and uploads of tenants: against a folder and a real S3."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2
import pytest

from callsheet.api import objects as object_routes
from callsheet.api import uploads
from callsheet.http import upload_records
from callsheet.objects import Objects, Signer
from callsheet.objects.signing import Claims, OwnObjects
from tests import stores
from tests.http.live import Live, problem, serving
from tests.running_worker import until
from tests.seaweed import ADMIN, BUCKET, REGION, s3_server

MEBIBYTE = 1024 * 1024
PART = 5 * MEBIBYTE  # the least that an S3 takes
ROUTERS = [object_routes.router, uploads.router]


def objects_of(live: Live) -> Objects:
    assert live.state.objects is not None
    return live.state.objects


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Live]:
    """A server that keeps its objects in a folder."""
    url = f"file://{tmp_path / 'objects'}"
    async with serving(stores.fresh_url("sqlite"), routers=ROUTERS, objects_url=url) as live:
        yield live


@pytest.fixture(params=["folder", "s3"])
async def either(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Live]:
    """A server with objects in a folder, and a server with objects in S3."""
    monkeypatch.setattr(upload_records, "PART_BYTES", PART)
    url = f"file://{tmp_path / 'objects'}"
    if request.param == "s3":
        monkeypatch.setenv("S3_ENDPOINT", s3_server().endpoint)
        monkeypatch.setenv("S3_REGION", REGION)
        monkeypatch.setenv("S3_ACCESS_KEY_ID", ADMIN.access_key_id)
        monkeypatch.setenv("S3_SECRET_ACCESS_KEY", ADMIN.secret_access_key)
        url = f"s3://{BUCKET}/{tmp_path.name}-{time.time_ns()}"
    async with serving(stores.fresh_url("sqlite"), routers=ROUTERS, objects_url=url) as live:
        yield live


async def send(live: Live, data: bytes, todo: dict[str, Any]) -> httpx2.Response:
    """Upload as a browser would: without a key, bytes from the offset on."""
    async with live.bare() as browser:
        body = data[todo["offset"] : todo["offset"] + todo["size"]]
        return await browser.request(todo["method"], todo["url"], content=body, headers=todo["headers"])


async def begun(client: httpx2.AsyncClient, size: int, **fields: Any) -> dict[str, Any]:
    answer = await client.post("/v1/uploads", json={"name": "holiday.mp4", "size": size, **fields})
    assert answer.status_code == 201, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def test_a_small_file_is_one_request_and_a_word(either: Live) -> None:
    for size in (0, 1, 100_000, PART):
        await one_request(either, size)


async def one_request(either: Live, size: int) -> None:
    data = hashlib.shake_128(b"x").digest(size)
    async with await either.key("acme") as acme:
        upload = await begun(acme, size)
        assert upload["key"] == f"uploads/acme/{upload['upload_id']}/holiday.mp4"
        assert (upload["status"], upload["received"], upload["part_count"]) == ("open", 0, 1)
        (todo,) = upload["todo"]
        assert (await send(either, data, todo)).status_code == 200
        body = (await acme.post(f"/v1/uploads/{upload['upload_id']}/complete")).json()
    assert (body["status"], body["received"], body["todo"]) == ("done", size, [])
    info = await objects_of(either).head(upload["key"])
    assert (info.size_bytes, info.content_type) == (size, "video/mp4")
    assert await objects_of(either).get(upload["key"]) == data


async def test_a_large_file_goes_on_after_a_break(either: Live) -> None:
    data = hashlib.shake_128(b"large").digest(3 * PART + 77)
    objects = objects_of(either)
    async with await either.key("acme") as acme:
        upload = await begun(acme, len(data))
        path = f"/v1/uploads/{upload['upload_id']}"
        assert [(part["number"], part["offset"], part["size"]) for part in upload["todo"]] == [
            (1, 0, PART),
            (2, PART, PART),
            (3, 2 * PART, PART),
            (4, 3 * PART, 77),
        ]
        for number in (2, 4):  # in any order
            assert (await send(either, data, upload["todo"][number - 1])).status_code == 200
        body = problem(await acme.post(f"{path}/complete"), 409, "upload_incomplete")
        assert body["missing"] == [1, 3]
        again = (await acme.get(path)).json()
        assert (again["status"], again["received"]) == ("open", PART + 77)
        assert [part["number"] for part in again["todo"]] == [1, 3]
        assert not await objects.exists(upload["key"])
        answers = await asyncio.gather(*(send(either, data, part) for part in again["todo"]))
        assert [answer.status_code for answer in answers] == [200, 200]
        assert (await acme.get(path)).json()["todo"] == []
        ends = await asyncio.gather(*(acme.post(f"{path}/complete") for _ in range(3)))
        assert {answer.status_code for answer in ends} <= {200, 409}
        last = await acme.post(f"{path}/complete")
        assert (last.status_code, last.json()["status"]) == (200, "done")
        problem(await acme.delete(path), 409, "refused")
        late = await send(either, data, again["todo"][0])
        assert late.status_code == 404, "a part after the end must not change the object"
    assert await objects.get(upload["key"]) == data


async def test_a_completion_that_was_not_written_down_is_found_again(either: Live) -> None:
    data = b"x" * (PART + 1)
    async with await either.key("acme") as acme:
        upload = await begun(acme, len(data))
        for todo in upload["todo"]:
            assert (await send(either, data, todo)).status_code == 200
        record = upload_records.UploadRecord(**await document(either, upload["upload_id"]))
        await objects_of(either).complete_multipart(record.upload)  # and here its process died
        path = f"/v1/uploads/{upload['upload_id']}"
        assert (await acme.get(path)).json()["received"] == len(data)
        assert (await acme.post(f"{path}/complete")).json()["status"] == "done"


async def document(live: Live, upload_id: str) -> dict[str, Any]:
    (document,) = await live.engine.store.documents(upload_records.KIND, upload_id)
    body: dict[str, Any] = json.loads(document.body)
    return body


async def test_a_part_of_another_size_does_not_arrive(either: Live) -> None:
    async with await either.key("acme") as acme:
        upload = await begun(acme, PART + 10)
        for todo in upload["todo"]:
            for size in (todo["size"] - 1, todo["size"] + 1):
                answer = await send(either, b"x" * 99_999_99, {**todo, "offset": 0, "size": size})
                assert answer.status_code in {400, 403, 413}, answer.text
        assert (await acme.get(f"/v1/uploads/{upload['upload_id']}")).json()["received"] == 0
        record = upload_records.UploadRecord(**await document(either, upload["upload_id"]))
        await objects_of(either).put_part(record.upload, 1, b"too short")  # by nobody's signed URL
        again = (await acme.get(f"/v1/uploads/{upload['upload_id']}")).json()
        assert [part["number"] for part in again["todo"]] == [1, 2]
        small = await begun(acme, 10)
        assert (await send(either, b"x" * 11, {**small["todo"][0], "size": 11})).status_code in {403, 413}
        problem(await acme.post(f"/v1/uploads/{small['upload_id']}/complete"), 409, "upload_incomplete")


async def test_a_dropped_upload_is_gone(either: Live) -> None:
    async with await either.key("acme") as acme:
        for size in (10, PART + 10):
            upload = await begun(acme, size)
            data = b"x" * size
            assert (await send(either, data, upload["todo"][0])).status_code == 200
            path = f"/v1/uploads/{upload['upload_id']}"
            assert (await acme.delete(path)).status_code == 204
            problem(await acme.get(path), 404, "upload_not_found")
            problem(await acme.delete(path), 404, "upload_not_found")
    assert [info.key async for info in objects_of(either).list()] == []


async def test_uploads_of_others_are_unknown(folder: Live) -> None:
    async with await folder.key("a") as a, await folder.key("b") as b, await folder.key("") as nobody:
        upload = await begun(a, 10)
        path = f"/v1/uploads/{upload['upload_id']}"
        for stranger in (b, nobody):
            for method, url in (("GET", path), ("POST", f"{path}/complete"), ("DELETE", path)):
                theirs = problem(await stranger.request(method, url), 404, "upload_not_found")
                other = url.replace(upload["upload_id"], upload["upload_id"][::-1])
                unknown = problem(await stranger.request(method, other), 404, "upload_not_found")
                assert theirs["detail"] == unknown["detail"]
        assert (await a.get(path)).json()["status"] == "open"
    async with folder.bare() as anybody:
        for method, url in (("POST", "/v1/uploads"), ("GET", path), ("POST", f"{path}/complete"), ("DELETE", path)):
            problem(await anybody.request(method, url, json={}), 401, "unauthorized")


async def test_tenants_of_any_name_have_folders_of_their_own(folder: Live) -> None:
    names = ["acme", "", "~", "..", ".", "a/b", "../acme", "ACME", "x" * 200, "日本", "-", "a b"]
    seen = set()
    for name in names:
        async with await folder.key(name) as client:
            seen.add((await begun(client, 1))["key"].split("/")[1])
    assert len(seen) == len(names)
    assert not seen & {"", ".", ".."}


NAMES = [
    ("../../etc/passwd", "passwd"),
    ("C:\\films\\a b.mp4", "a_b.mp4"),
    ("..", "file"),
    ("日本.mp4", "__.mp4"),
    ("a\nb\0.mp4", "a_b_.mp4"),
    ("x" * 255, "x" * 100),
]


async def test_a_file_s_name_cannot_lead_anywhere(folder: Live) -> None:
    async with await folder.key("acme") as acme:
        for name, last in NAMES:
            upload = await begun(acme, 1, name=name)
            assert upload["key"] == f"uploads/acme/{upload['upload_id']}/{last}"
            assert upload["name"] == name


WRONG_UPLOADS: list[dict[str, Any]] = [
    {},
    {"name": "", "size": 1},
    {"name": "a", "size": -1},
    {"name": "a", "size": 1.5},
    {"name": "a", "size": "1"},
    {"name": "a", "size": 2**60},
    {"name": "a", "size": 1, "content_type": "a/b\r\nSet-Cookie: x"},
    {"name": "a", "size": 1, "key": "../a"},
]


async def test_an_upload_that_cannot_be_is_refused(folder: Live) -> None:
    for body in WRONG_UPLOADS:
        answer = await folder.client.post("/v1/uploads", json=body)
        assert (answer.status_code, answer.json()["code"]) in {(422, "validation_failed"), (422, "invalid_key")}, body


async def test_old_uploads_are_swept_with_what_was_sent(folder: Live, tmp_path: Path) -> None:
    async with await folder.key("acme") as acme:
        small, large = await begun(acme, 3), await begun(acme, upload_records.PART_BYTES + 1)
        for upload in (small, large):
            await send(folder, b"x" * (upload_records.PART_BYTES + 1), upload["todo"][-1])
        done = await begun(acme, 3)
        await send(folder, b"abc", done["todo"][0])
        await acme.post(f"/v1/uploads/{done['upload_id']}/complete")
    store = folder.engine.store
    later = await store.now() + upload_records.LIFE_S * 1000 + 1
    await upload_records.sweep(store, objects_of(folder), later - 2000)
    assert len(await store.documents(upload_records.KIND)) == 3
    await upload_records.sweep(store, objects_of(folder), later)
    assert await store.documents(upload_records.KIND) == []
    assert [info.key async for info in objects_of(folder).list()] == [done["key"]]
    assert list((tmp_path / "objects/.callsheet/uploads").iterdir()) == []


async def test_a_server_without_objects_says_so(small: Live) -> None:
    async with serving(stores.fresh_url("sqlite"), routers=ROUTERS) as live:
        body = problem(await live.client.post("/v1/uploads", json={"name": "a", "size": 1}), 404, "not_found")
        assert "--objects-url" in body["detail"]
        problem(await live.client.get("/objects/a?expires=1&signature=x"), 404, "not_found")


RANGES: list[tuple[dict[str, str], int, bytes, str | None]] = [
    ({}, 200, b"0123456789", None),
    ({"Range": "bytes=0-3"}, 206, b"0123", "bytes 0-3/10"),
    ({"Range": "bytes=4-"}, 206, b"456789", "bytes 4-9/10"),
    ({"Range": "bytes=-3"}, 206, b"789", "bytes 7-9/10"),
    ({"Range": "bytes=-99"}, 206, b"0123456789", "bytes 0-9/10"),
    ({"Range": "bytes=8-99"}, 206, b"89", "bytes 8-9/10"),
    ({"Range": "bytes=5-2"}, 200, b"0123456789", None),
    ({"Range": "bytes=0-1,3-4"}, 200, b"0123456789", None),
    ({"Range": "bytes=-"}, 200, b"0123456789", None),
    ({"Range": "pages=1-2"}, 200, b"0123456789", None),
    ({"Range": "bytes=0-3", "If-Range": '"another"'}, 200, b"0123456789", None),
]


async def test_ranges_are_those_of_the_standard(folder: Live) -> None:
    await objects_of(folder).put("a/b.mp4", b"0123456789")
    signed_url = await objects_of(folder).sign_get("a/b.mp4", 60)
    async with folder.bare() as browser:
        for query, status, body, content_range in RANGES:
            answer = await browser.get(signed_url.url, headers=query)
            assert (answer.status_code, answer.content, answer.headers.get("content-range")) == (
                status,
                body,
                content_range,
            )
            assert answer.headers["content-length"] == str(len(body))


async def test_a_range_beyond_the_end_and_a_version_that_is_known(folder: Live) -> None:
    info = await objects_of(folder).put("a", b"0123456789")
    url = (await objects_of(folder).sign_get("a", 60)).url
    async with folder.bare() as browser:
        for request in ("bytes=10-", "bytes=99-100", "bytes=-0"):
            answer = await browser.get(url, headers={"Range": request})
            problem(answer, 416, "range_not_satisfiable")
            assert answer.headers["content-range"] == "bytes */10"
        answer = await browser.get(url, headers={"Range": "bytes=0-3", "If-Range": info.etag})
        assert answer.status_code == 206
        answer = await browser.get(url, headers={"If-None-Match": info.etag})
        assert (answer.status_code, answer.content) == (304, b"")
        await objects_of(folder).delete("a")
        problem(await browser.get(url), 404, "object_not_found")


SHOWN = [
    ("a.html", "text/html", False),
    ("a.svg", "image/svg+xml", False),
    ("a.xml", "application/xml", False),
    ("a.js", "text/javascript", False),
    ("a.pdf", "application/pdf", False),
    ("a.mp4", "video/mp4", True),
    ("a.jpg", "image/jpeg", True),
    ("a.m3u8", "application/vnd.apple.mpegurl", True),
]


async def test_what_could_run_here_is_only_a_download(folder: Live) -> None:
    objects = objects_of(folder)
    async with folder.bare() as browser:
        for name, content_type, inline in SHOWN:
            await objects.put(name, b"<script>alert(1)</script>", content_type=content_type)
            answer = await browser.get((await objects.sign_get(name, 60)).url)
            assert answer.headers["content-type"] == content_type
            assert answer.headers["content-disposition"].startswith("inline" if inline else "attachment")
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
            response = await browser.get((await objects.sign_get(name, 60, download_name='x"; é\r\n.mp4')).url)
            disposition = "attachment; filename=\"x__ ___.mp4\"; filename*=UTF-8''x%22%3B%20%C3%A9%0D%0A.mp4"
            assert response.headers["content-disposition"] == disposition


async def test_a_url_opens_only_what_it_was_signed_for(folder: Live) -> None:
    objects = objects_of(folder)
    await objects.put("a/b", b"secret")
    await objects.put("a/c", b"other")
    get = (await objects.sign_get("a/b", 60)).url
    put = (await objects.sign_put("new", 60, size_bytes=3, content_type="text/plain")).url
    parts = urlsplit(get)
    query = dict(parse_qsl(parts.query))
    assert set(query) == {"expires", "signature"}
    flipped_text = ("0" if query["signature"][0] != "0" else "1") + query["signature"][1:]
    wrong = [
        ("GET", get.replace("a/b", "a/c")),
        ("GET", get.replace("a/b", "a%2F..%2Fa%2Fb")),
        ("GET", f"{parts.path}?{urlencode({**query, 'expires': int(query['expires']) + 1})}"),
        ("GET", f"{parts.path}?{urlencode({**query, 'signature': flipped_text})}"),
        ("GET", f"{parts.path}?{urlencode({**query, 'signature': ''})}"),
        ("GET", f"{parts.path}?expires={query['expires']}"),
        ("GET", parts.path),
        ("GET", f"{get}&name=x"),
        ("GET", f"{get}&expires={query['expires']}"),
        ("GET", f"{get}&x=é\udcff".encode("utf-8", "replace").decode()),
        ("PUT", get),
        ("GET", put),
        ("PUT", put.replace("size=3", "size=4")),
        ("PUT", put.replace("size=3&", "")),
        ("PUT", put.replace("text%2Fplain", "text%2Fhtml")),
        ("PUT", put.replace("/objects/new", "/objects/a/b")),
    ]
    async with folder.bare() as browser:
        for method, url in wrong:
            problem(await browser.request(method, url, content=b"abc"), 403, "link_refused")
        other = Signer(b"another secret of thirty-two byte")
        url = other.sign("GET", "a/b", Claims(int(query["expires"]))).url
        problem(await browser.get(url), 403, "link_refused")
        assert (await browser.get(get)).content == b"secret"
    assert [info.key async for info in objects.list()] == ["a/b", "a/c"]


async def test_a_url_has_an_end(folder: Live) -> None:
    objects = objects_of(folder)
    assert isinstance(objects, OwnObjects)
    assert objects.signer is not None
    await objects.put("a", b"x")
    over = int(time.time()) - 1
    async with folder.bare() as browser:
        problem(await browser.get(objects.signer.sign("GET", "a", Claims(over)).url), 403, "link_expired")
        url = objects.signer.sign("PUT", "a", Claims(over)).url
        problem(await browser.put(url, content=b"new"), 403, "link_expired")
    assert await objects.get("a") == b"x"


async def test_a_body_is_of_the_size_and_type_that_was_signed(folder: Live) -> None:
    objects = objects_of(folder)
    signed_url = await objects.sign_put("a", 60, size_bytes=5, content_type="text/x-own")

    async def chunked(*pieces: bytes) -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    async with folder.bare() as browser:
        for body, code, status in (
            (b"123456", "object_too_large", 413),
            (b"1234", "bad_request", 400),
            (chunked(b"123", b"456"), "object_too_large", 413),
            (chunked(b"123", b"4"), "bad_request", 400),
        ):
            problem(await browser.put(signed_url.url, content=body, headers=dict(signed_url.headers)), status, code)
        wrong = await browser.put(signed_url.url, content=b"12345", headers={"content-type": "text/html"})
        problem(wrong, 415, "unsupported_media_type")
        assert not await objects.exists("a")
        answer = await browser.put(signed_url.url, content=chunked(b"123", b"45"), headers=dict(signed_url.headers))
        assert answer.status_code == 200
    info = await objects.head("a")
    assert (answer.headers["etag"], info.content_type) == (info.etag, "text/x-own")


async def test_a_client_that_goes_in_the_middle_leaves_nothing(folder: Live, tmp_path: Path) -> None:
    signed_url = await objects_of(folder).sign_put("a", 60, size_bytes=10 * MEBIBYTE)
    url = urlsplit(folder.url)
    _, writer = await asyncio.open_connection(url.hostname, url.port)
    writer.write(f"PUT {signed_url.url} HTTP/1.1\r\nHost: x\r\nContent-Length: {10 * MEBIBYTE}\r\n\r\n".encode())
    writer.write(b"x" * MEBIBYTE)
    await writer.drain()
    temporary = tmp_path / "objects/.callsheet/tmp"
    await until(lambda: temporary.exists() and any(path.stat().st_size for path in temporary.iterdir()))
    writer.transport.abort()
    await until(lambda: not list(temporary.iterdir()))
    assert [info.key async for info in objects_of(folder).list()] == []


async def test_a_client_that_stops_sending_is_let_go(folder: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_routes, "IDLE_S", 0.05)
    signed_url = await objects_of(folder).sign_put("a", 60, size_bytes=10)
    url = urlsplit(folder.url)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    writer.write(f"PUT {signed_url.url} HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n12345".encode())
    answer = await asyncio.wait_for(reader.read(), 60)
    assert answer.startswith(b"HTTP/1.1 400")
    writer.close()
    assert not await objects_of(folder).exists("a")


async def test_only_signed_bodies_may_be_large(folder: Live) -> None:
    async with folder.bare() as browser:
        large = b"x" * (2 * MEBIBYTE)
        signed_url = await objects_of(folder).sign_put("a", 60)
        assert (await browser.put(signed_url.url, content=large)).status_code == 200
        problem(await browser.post("/objects/a", content=large), 413, "body_too_large")
        problem(await browser.put("/v1/uploads", content=large), 413, "body_too_large")


async def test_no_signature_gets_into_a_log(folder: Live, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    objects = objects_of(folder)
    await objects.put("a", b"x")
    signed_url = await objects.sign_get("a", 60)
    signature = re.search(r"signature=(\w+)", signed_url.url)
    assert signature is not None
    async with folder.bare() as browser:
        await browser.get(signed_url.url)
        await browser.put(signed_url.url, content=b"x")
    ours = [record.getMessage() for record in caplog.records if record.name.startswith(("callsheet", "uvicorn"))]
    assert any("/objects/" in line for line in ours)
    assert not any(signature[1] in line for line in ours)
    assert signature[1] not in repr(signed_url) + str(signed_url) + repr(objects)
