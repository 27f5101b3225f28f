"""The face keeps its word on memory, a folder and a real S3."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from callsheet.objects import (
    InvalidKey,
    ObjectChanged,
    ObjectExists,
    ObjectInfo,
    ObjectNotFound,
    Objects,
    ObjectsUnavailable,
    ObjectTooLarge,
    Part,
    UploadIncomplete,
    UploadNotFound,
    face,
    folder,
)
from callsheet.objects.s3 import S3Objects
from tests.objects.conftest import MEBIBYTE, PART

MANY = 1100 if os.environ.get("CALLSHEET_DEEP") else 250  # an S3 has pages of 1000
LARGE = 17 * MEBIBYTE + 12_345  # three parts at an S3
WRONG_KEYS = [
    "",
    "/",
    "/a",
    "a/",
    "a//b",
    "..",
    "../a",
    "a/../b",
    "a/..",
    "./a",
    "a/./b",
    "a\\b",
    "a\0b",
    "a\nb",
    "a\x7f",
    "a\ud800",
    "x" * 256,
    "/".join(["x" * 200] * 5),
    ".callsheet/tmp/a",
    ".callsheet",
]
GOOD_KEYS = [
    "a",
    "a/b.c",
    "ü/ñ 語 😀",
    "a b+c&d=e?f#g%2Fh",
    "..a/b..",
    "-",
    "~",
    "x" * 255,
    "a/.hidden",
    "it's (1);@:,!*",
]


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def keys(objects: Objects, prefix: str = "", after: str = "") -> list[str]:
    return [info.key async for info in objects.list(prefix, after=after)]


def bytes_or_folders(objects: Objects) -> Callable[[str], Any]:
    """SeaweedFS lists folder by folder; everything else by the bytes of the keys."""
    return (lambda key: key.split("/")) if isinstance(objects, S3Objects) else str.encode


def large(seed: int = 1) -> bytes:
    return hashlib.shake_128(bytes([seed])).digest(LARGE)


async def test_what_was_put_is_there(objects: Objects) -> None:
    put = await objects.put("a/b.mp4", b"hello", content_type="text/x-own")
    head = await objects.head("a/b.mp4")
    assert put == head == ObjectInfo("a/b.mp4", 5, put.etag, put.modified_ms, "text/x-own")
    assert put.etag
    assert await objects.get("a/b.mp4") == b"hello"
    assert await objects.exists("a/b.mp4")
    assert not await objects.exists("a")


async def test_a_put_replaces_bytes_etag_and_content_type(objects: Objects) -> None:
    first = await objects.put("a.bin", b"one", content_type="text/x-one")
    second = await objects.put("a.bin", b"two and more")
    assert first.etag != second.etag
    assert await objects.get("a.bin") == b"two and more"
    assert (await objects.head("a.bin")).content_type == "application/octet-stream"


@pytest.mark.parametrize(
    ("name", "content_type"),
    [
        ("a.m3u8", "application/vnd.apple.mpegurl"),
        ("a.ts", "video/mp2t"),
        ("a.jpg", "image/jpeg"),
        ("a", "application/octet-stream"),
    ],
)
async def test_the_name_tells_the_content_type(objects: Objects, name: str, content_type: str) -> None:
    await objects.put(name, b"")
    assert (await objects.head(name)).content_type == content_type


@pytest.mark.parametrize("content_type", ["", "video", "a/b\r\nx: y", "a/b; c", "x" * 300 + "/y"])
async def test_a_content_type_that_is_none_is_refused(objects: Objects, content_type: str) -> None:
    with pytest.raises(InvalidKey):
        await objects.put("a", b"", content_type=content_type)


async def test_keys_of_any_letters_come_back_as_they_were(objects: Objects) -> None:
    for key in GOOD_KEYS:
        await objects.put(f"keys/{key}" if "/" not in key else key, key.encode())
    for key in GOOD_KEYS:
        assert await objects.get(f"keys/{key}" if "/" not in key else key) == key.encode()
    assert sorted(await keys(objects)) == sorted(f"keys/{key}" if "/" not in key else key for key in GOOD_KEYS)


@pytest.mark.parametrize("key", WRONG_KEYS)
async def test_every_verb_refuses_a_wrong_key(objects: Objects, key: str, tmp_path: Path) -> None:
    await objects.put("good", b"x")
    (tmp_path / "file").write_bytes(b"x")
    for attempt in (
        lambda: objects.put(key, b"x"),
        lambda: objects.put_file(key, tmp_path / "file"),
        lambda: objects.get(key),
        lambda: objects.get_range(key, 0, 1),
        lambda: objects.get_file(key, tmp_path / "out"),
        lambda: objects.head(key),
        lambda: objects.exists(key),
        lambda: objects.copy("good", key),
        lambda: objects.copy(key, "good2"),
        lambda: objects.delete(key),
        lambda: asyncio.to_thread(objects.open_reader, key),
        lambda: objects.sign_get(key, 60),
        lambda: objects.sign_put(key, 60),
        lambda: objects.begin_multipart(key, part_bytes=PART),
    ):
        with pytest.raises(InvalidKey):
            await attempt()
    if key not in {"", "a/"}:  # a folder of keys may be written with its slash
        with pytest.raises(InvalidKey):
            await keys(objects, key)
    assert await keys(objects) == ["good"]


async def test_what_is_not_there_is_told_so(objects: Objects, tmp_path: Path) -> None:
    await objects.put("a/b", b"x")
    for key in ("no", "a", "a/b/c", "a/no"):
        for attempt in (
            lambda key=key: objects.get(key),
            lambda key=key: objects.head(key),
            lambda key=key: objects.get_range(key, 0, 1),
            lambda key=key: objects.get_file(key, tmp_path / "out"),
            lambda key=key: objects.copy(key, "target"),
            lambda key=key: asyncio.to_thread(objects.open_reader, key),
        ):
            with pytest.raises(ObjectNotFound):
                await attempt()
    assert not list(tmp_path.glob("out*"))


async def test_only_if_absent_never_replaces(objects: Objects) -> None:
    await objects.put("a", b"one", only_if_absent=True)
    for data in (b"two", pieces(b"two"), pieces(*[b"x" * MEBIBYTE] * 18)):
        with pytest.raises(ObjectExists):
            await objects.put("a", data, only_if_absent=True)
    assert await objects.get("a") == b"one"


async def test_of_many_who_create_one_wins(objects: Objects) -> None:
    answers = await asyncio.gather(
        *(objects.put("a", b"%d" % number, only_if_absent=True) for number in range(8)), return_exceptions=True
    )
    winners = [number for number, answer in enumerate(answers) if isinstance(answer, ObjectInfo)]
    assert len(winners) == 1
    assert all(isinstance(answer, ObjectExists | ObjectInfo) for answer in answers), answers
    assert await objects.get("a") == b"%d" % winners[0]


async def test_a_put_on_condition_changes_only_that_version(objects: Objects) -> None:
    with pytest.raises(ObjectChanged):
        await objects.put("a", b"none there", if_match='"0123"')
    first = await objects.put("a", b"one")
    second = await objects.put("a", b"two", if_match=first.etag)
    with pytest.raises(ObjectChanged):
        await objects.put("a", b"three", if_match=first.etag)
    assert await objects.get("a") == b"two"
    with pytest.raises(ObjectChanged):
        await objects.get_range("a", 0, 1) and [piece async for piece in objects.stream("a", if_match=first.etag)]
    assert b"".join([piece async for piece in objects.stream("a", if_match=second.etag)]) == b"two"


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [(0, 4, b"0123"), (2, 5, b"234"), (8, 99, b"89"), (10, 12, b""), (99, 100, b""), (3, 3, b""), (5, 2, b"")],
)
async def test_a_range_ends_where_the_object_does(objects: Objects, start: int, end: int, found: bytes) -> None:
    await objects.put("a", b"0123456789")
    assert await objects.get_range("a", start, end) == found


async def test_an_empty_object_is_an_object(objects: Objects, tmp_path: Path) -> None:
    await objects.put("a", b"")
    await objects.put("b", pieces())
    for key in ("a", "b"):
        assert (await objects.head(key)).size_bytes == 0
        assert await objects.get(key) == b""
        assert await objects.get_range(key, 0, 5) == b""
        fetched = await objects.get_file(key, tmp_path / "file")
        assert fetched.sha256 == hashlib.sha256(b"").hexdigest()
        assert (tmp_path / "file").read_bytes() == b""
    assert (await objects.copy("a", "c", only_if_absent=True)).size_bytes == 0


async def test_get_has_a_limit(objects: Objects) -> None:
    await objects.put("a", b"0123456789")
    assert await objects.get("a", max_bytes=10) == b"0123456789"
    with pytest.raises(ObjectTooLarge):
        await objects.get("a", max_bytes=9)


async def test_large_bytes_go_and_come_in_pieces(objects: Objects) -> None:
    data = large()
    info = await objects.put("large.bin", pieces(data[:5], data[5 : 9 * MEBIBYTE], b"", data[9 * MEBIBYTE :]))
    assert info.size_bytes == LARGE
    results = [piece async for piece in objects.stream("large.bin")]
    assert max(map(len, results)) < 8 * MEBIBYTE
    assert b"".join(results) == data
    assert await objects.get_range("large.bin", 12 * MEBIBYTE, 12 * MEBIBYTE + 7) == data[12 * MEBIBYTE :][:7]


async def test_a_stream_that_breaks_leaves_nothing(objects: Objects) -> None:
    await objects.put("old", b"old")

    async def broken(size: int) -> AsyncIterator[bytes]:
        yield b"x" * size
        raise RuntimeError("broke")

    for key, size in (("old", 10), ("new", 10), ("old", 20 * MEBIBYTE)):
        with pytest.raises(RuntimeError, match="broke"):
            await objects.put(key, broken(size))
    assert await keys(objects) == ["old"]
    assert await objects.get("old") == b"old"


async def test_files_go_and_come_with_their_hash_and_progress(objects: Objects, tmp_path: Path) -> None:
    data = large()
    (tmp_path / "in.mp4").write_bytes(data)
    progress_of_put: list[tuple[int, int]] = []
    put = await objects.put_file(
        "a/in.mp4", tmp_path / "in.mp4", progress=lambda *bytes_done: progress_of_put.append(bytes_done)
    )
    assert (put.sha256, put.info.size_bytes) == (hashlib.sha256(data).hexdigest(), LARGE)
    assert put.info.content_type == "video/mp4"
    taken_jobs: list[tuple[int, int]] = []
    info = await objects.get_file(
        "a/in.mp4", tmp_path / "out.mp4", progress=lambda *bytes_done: taken_jobs.append(bytes_done)
    )
    assert info == (put.info, put.sha256, LARGE)
    assert (tmp_path / "out.mp4").read_bytes() == data
    for progress in (progress_of_put, taken_jobs):
        assert [bytes_done for bytes_done, _ in progress] == sorted({bytes_done for bytes_done, _ in progress})
        assert progress[-1] == (LARGE, LARGE)
        assert len(progress) > 4
    assert sorted(path.name for path in tmp_path.glob("*.*")) == ["in.mp4", "out.mp4"]


async def test_a_file_too_large_is_refused_and_leaves_nothing(objects: Objects, tmp_path: Path) -> None:
    await objects.put("a", b"0123456789")
    with pytest.raises(ObjectTooLarge):
        await objects.get_file("a", tmp_path / "out", max_bytes=9)
    assert not list(tmp_path.glob("out*"))


async def test_a_half_taken_file_goes_on_where_it_was(objects: Objects, tmp_path: Path) -> None:
    data = large()
    await objects.put("a", data)
    out = tmp_path / "out"

    def stop(done: int, _: int) -> None:
        if done > 6 * MEBIBYTE:
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        await objects.get_file("a", out, progress=stop)
    assert not out.exists()
    info = await objects.get_file("a", out)
    assert 0 < info.bytes_moved < LARGE - 6 * MEBIBYTE
    assert info.sha256 == hashlib.sha256(data).hexdigest()
    assert out.read_bytes() == data


async def test_a_half_taken_file_begins_again_when_the_object_is_another(objects: Objects, tmp_path: Path) -> None:
    await objects.put("a", large(1))
    out = tmp_path / "out"

    def stop(*_: int) -> None:
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        await objects.get_file("a", out, progress=stop)
    await objects.put("a", large(2))
    info = await objects.get_file("a", out)
    assert info.bytes_moved == LARGE
    assert out.read_bytes() == large(2)


async def test_an_object_that_changes_while_a_broken_download_rests_is_taken_anew(
    objects: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await objects.put("a", large(1))
    whole, calls = objects.stream, 0

    async def breaking(key: str, **options: Any) -> AsyncIterator[bytes]:
        nonlocal calls
        calls += 1
        async for piece in whole(key, **options):
            yield piece
            if calls == 1:
                await objects.put("a", large(2))
                raise ObjectsUnavailable("the connection broke")

    monkeypatch.setattr(objects, "stream", breaking)
    await objects.get_file("a", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == large(2)


async def test_lists_are_by_folder_and_go_on_behind_a_key(objects: Objects) -> None:
    names = ["a-b", "a/b", "a/b-c/d", "a/b0", "a0", "ab/c", "b/z", "b/ü", "é"]
    for name in reversed(names):
        await objects.put(name, b"x")
    keys_there = await keys(objects)
    assert sorted(keys_there) == names
    assert keys_there == sorted(names, key=bytes_or_folders(objects))
    assert await keys(objects, "a") == ["a/b", "a/b-c/d", "a/b0"]
    assert await keys(objects, "a/") == ["a/b", "a/b-c/d", "a/b0"]
    assert await keys(objects, "a/b-c") == ["a/b-c/d"]
    assert await keys(objects, "nothing/here") == []
    assert await keys(objects, "b", after="b/z") == ["b/ü"]
    for position, name in enumerate(keys_there):
        assert await keys(objects, after=name) == keys_there[position + 1 :]


async def test_a_long_list_comes_in_pages_and_is_removed_by_its_folder(
    objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(face, "AT_ONCE", 100)
    monkeypatch.setattr(folder, "PAGE", 50)
    await asyncio.gather(*(objects.put(f"many/{number:04}", b"x") for number in range(MANY)))
    await objects.put("many-more", b"x")
    many_keys = await keys(objects, "many")
    assert many_keys == [f"many/{number:04}" for number in range(MANY)]
    assert await objects.delete_prefix("many") == MANY
    assert await keys(objects) == ["many-more"]
    assert await objects.delete_prefix("many") == 0
    for everything in ("", "/"):
        with pytest.raises(InvalidKey):
            await objects.delete_prefix(everything)


async def test_deleting_what_is_not_there_is_no_error(objects: Objects) -> None:
    await objects.put("a/b", b"x")
    await objects.delete("no", "a/no", "a/b", "a/b", "a/b/c", "a")
    await objects.delete()
    assert await keys(objects) == []


async def test_a_folder_is_not_deleted_as_an_object(objects: Objects) -> None:
    await objects.put("a/b", b"x")
    await objects.delete("a")
    assert await keys(objects) == ["a/b"]


async def test_a_copy_has_the_bytes_and_the_type(objects: Objects) -> None:
    await objects.put("a", large(), content_type="text/x-own")
    info = await objects.copy("a", "b/c.mp4")
    assert (info.key, info.size_bytes, info.content_type) == ("b/c.mp4", LARGE, "text/x-own")
    assert await objects.get("b/c.mp4") == large()
    await objects.put("d", b"there")
    with pytest.raises(ObjectExists):
        await objects.copy("a", "d", only_if_absent=True)
    assert await objects.get("d") == b"there"
    assert (await objects.copy("d", "e", only_if_absent=True)).size_bytes == 5
    assert await objects.get("e") == b"there"


async def test_a_reader_seeks_like_a_file(objects: Objects) -> None:
    data = large()
    await objects.put("a", data)

    def read() -> None:
        with objects.open_reader("a") as file:
            assert file.read(10) == data[:10]
            assert file.seek(-7, os.SEEK_END) == LARGE - 7
            assert file.read() == data[-7:]
            assert file.read(1) == b""
            assert file.seek(9 * MEBIBYTE) == 9 * MEBIBYTE
            assert file.read(300_000) == data[9 * MEBIBYTE :][:300_000]
            assert file.tell() == 9 * MEBIBYTE + 300_000
            assert isinstance(file.read(3), bytes)

    await asyncio.to_thread(read)


async def test_parts_in_any_order_make_the_object(objects: Objects) -> None:
    data = large()[: 2 * PART + 100]
    upload = await objects.begin_multipart("a/big.mp4", part_bytes=PART)
    assert await objects.list_parts(upload) == []
    await objects.put_part(upload, 3, data[2 * PART :])
    await objects.put_part(upload, 1, b"a first try that is replaced")
    one = await objects.put_part(upload, 1, data[:PART])
    assert [part.number for part in await objects.list_parts(upload)] == [1, 3]
    with pytest.raises(UploadIncomplete):
        await objects.complete_multipart(upload)
    await objects.put_part(upload, 2, pieces(data[PART : PART + 77], data[PART + 77 : 2 * PART]))
    assert not await objects.exists("a/big.mp4")
    assert await keys(objects) == []
    parts = await objects.list_parts(upload)
    assert [(part.number, part.size_bytes) for part in parts] == [(1, PART), (2, PART), (3, 100)]
    assert parts[0].etag == one.etag
    info = await objects.complete_multipart(upload)
    assert (info.size_bytes, info.content_type) == (2 * PART + 100, "video/mp4")
    assert await objects.get("a/big.mp4") == data


async def test_parts_that_did_not_arrive_so_make_no_object(objects: Objects) -> None:
    upload = await objects.begin_multipart("a", part_bytes=PART)
    part = await objects.put_part(upload, 1, b"x" * PART)
    for parts in (
        [],
        [part._replace(number=2)],
        [part, Part(2, '"0123"', 5)],
        [part._replace(etag='"0123456789abcdef0123456789abcdef"')],
    ):
        with pytest.raises(UploadIncomplete):
            await objects.complete_multipart(upload, parts)
    with pytest.raises(ObjectTooLarge):
        await objects.put_part(upload, 2, b"x" * (PART + 1))
    for number in (0, 10_001, -1):
        with pytest.raises(UploadIncomplete):
            await objects.put_part(upload, number, b"x")
        with pytest.raises(UploadIncomplete):
            await objects.sign_part(upload, number, 60)
    assert (await objects.complete_multipart(upload, [part])).size_bytes == PART


async def test_an_aborted_upload_is_gone(objects: Objects) -> None:
    upload = await objects.begin_multipart("a", part_bytes=PART)
    await objects.put_part(upload, 1, b"x")
    await objects.abort_multipart(upload)
    await objects.abort_multipart(upload)
    await objects.abort_multipart(upload._replace(upload_id="0" * 32))
    with pytest.raises(UploadNotFound):
        await objects.put_part(upload, 1, b"x")
    with pytest.raises(UploadNotFound):
        await objects.list_parts(upload)
    with pytest.raises((UploadNotFound, UploadIncomplete)):
        await objects.complete_multipart(upload, [Part(1, "x", 1)])
    assert await keys(objects) == []


async def test_an_upload_does_not_replace_what_must_stay(objects: Objects) -> None:
    await objects.put("a", b"there")
    upload = await objects.begin_multipart("a", part_bytes=PART)
    await objects.put_part(upload, 1, b"new")
    with pytest.raises(ObjectExists):
        await objects.complete_multipart(upload, only_if_absent=True)
    assert await objects.get("a") == b"there"
    await objects.complete_multipart(upload)
    assert await objects.get("a") == b"new"


async def test_a_second_close_does_nothing(objects: Objects) -> None:
    await objects.put("a", b"x")
    await objects.close()
    await objects.close()
