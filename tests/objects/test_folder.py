"""The folder confines every path: whatever somebody puts into it, nothing outside of it is read, written or removed."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import shutil
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from callsheet.objects import (
    KeyConflict,
    ObjectExists,
    ObjectNotFound,
    Objects,
    ObjectsError,
    ObjectsForbidden,
    ObjectsUnavailable,
    UploadBusy,
    UploadNotFound,
    objects_from_url,
)
from callsheet.objects.tree import FOLDER, Tree, _children

CANARY = b"the canary outside"


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """Return a folder outside that must not change."""
    folder = tmp_path / "outside"
    (folder / "deep").mkdir(parents=True)
    (folder / "canary").write_bytes(CANARY)
    (folder / "deep/canary").write_bytes(CANARY)
    yield folder
    contents = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert contents == {"canary": CANARY, "deep/canary": CANARY}, "something outside was changed"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "objects"
    root.mkdir()
    return root


def verbs(objects: Objects, key: str, tmp_path: Path) -> list[Callable[[], Awaitable[object]]]:
    """Return every way to read a key."""
    return [
        lambda: objects.get(key),
        lambda: objects.head(key),
        lambda: objects.get_range(key, 0, 5),
        lambda: objects.get_file(key, tmp_path / "out"),
        lambda: objects.copy(key, "copied"),
        lambda: asyncio.to_thread(objects.open_reader, key),
    ]


async def test_links_are_not_followed(folder: Objects, root: Path, outside: Path, tmp_path: Path) -> None:
    (root / "file").symlink_to(outside / "canary")
    (root / "folder").symlink_to(outside)
    (root / "relative").symlink_to("../outside/canary")
    (root / "loop").symlink_to("loop")
    (root / "dangling").symlink_to(outside / "new")
    for key in ("file", "folder/canary", "folder/deep/canary", "relative", "loop", "dangling", "loop/a"):
        for read in verbs(folder, key, tmp_path):
            with pytest.raises(ObjectNotFound):
                await read()
        assert not await folder.exists(key)
    assert [info.key async for info in folder.list()] == []
    assert [info.key async for info in folder.list("folder")] == []
    for key in ("folder/new", "folder/canary", "loop/a"):
        with pytest.raises(KeyConflict):
            await folder.put(key, b"x")
    await folder.delete("folder/canary", "folder/deep/canary")
    assert await folder.delete_prefix("folder") == 0


async def test_a_link_in_the_place_of_an_object_is_replaced_and_removed_itself(
    folder: Objects, root: Path, outside: Path
) -> None:
    (root / "file").symlink_to(outside / "canary")
    (root / "new").symlink_to(outside / "new")
    (root / "gone").symlink_to(outside / "canary")
    await folder.put("file", b"ours", content_type="text/x-own")
    await folder.put("new", b"ours", only_if_absent=True)
    await folder.delete("gone")
    assert not (root / "file").is_symlink()
    assert (root / "file").read_bytes() == (root / "new").read_bytes() == b"ours"
    assert not (root / "gone").is_symlink()


async def test_links_in_our_own_folder_are_not_followed(folder: Objects, root: Path, outside: Path) -> None:
    await folder.put("a", b"x", content_type="text/x-own")
    upload = await folder.begin_multipart("b", part_bytes=100)
    shutil.rmtree(root / ".callsheet")
    (root / ".callsheet").symlink_to(outside)
    with pytest.raises(ObjectsError):
        await folder.put("a", b"y")
    with pytest.raises(ObjectsError):
        await folder.begin_multipart("b", part_bytes=100)
    with pytest.raises(UploadNotFound):
        await folder.put_part(upload, 1, b"x")
    assert await folder.get("a") == b"x"
    (root / ".callsheet").unlink()
    inside = root / ".callsheet/uploads" / upload.upload_id
    inside.mkdir(parents=True)
    (inside / "meta.json").write_text(json.dumps(upload._asdict()))
    (inside / "data").symlink_to(outside / "canary")
    with pytest.raises(ObjectsError):
        await folder.put_part(upload, 1, b"evil")


async def test_pipes_devices_and_sockets_are_no_objects(folder: Objects, root: Path, tmp_path: Path) -> None:
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(root / "socket"))
        for key in ("pipe", "socket"):
            for read in verbs(folder, key, tmp_path):
                async with asyncio.timeout(60):
                    with pytest.raises(ObjectNotFound):
                        await read()
        assert [info.key async for info in folder.list()] == []
        await folder.put("pipe", b"a file now")
        assert await folder.get("pipe") == b"a file now"


async def test_a_path_that_is_swapped_for_a_link_again_and_again_never_leads_out(
    folder: Objects, root: Path, outside: Path
) -> None:
    """An attacker swaps a folder for a symlink to the outside in a tight loop, while all verbs run."""
    await folder.put("swap/canary", b"inside")
    (root / "link").symlink_to(outside)
    stop, swaps, rounds = threading.Event(), 0, 0

    def swap() -> None:
        nonlocal swaps
        while not stop.is_set():
            with contextlib.suppress(OSError):  # a delete has removed the folder, or a put has made it anew
                (root / "swap").rename(root / "kept")
                (root / "link").rename(root / "swap")
                (root / "swap").rename(root / "link")
                swaps += 1
            with contextlib.suppress(OSError):
                shutil.rmtree(root / "swap", ignore_errors=True)
                (root / "kept").rename(root / "swap")
            shutil.rmtree(root / "kept", ignore_errors=True)
            with contextlib.suppress(OSError):
                (root / "swap").mkdir(exist_ok=True)

    attacker = threading.Thread(target=swap)
    attacker.start()
    seen: set[object] = set()
    try:
        until = time.monotonic() + 60
        while (swaps < 200 or rounds < 200 or b"inside" not in seen) and time.monotonic() < until:
            rounds += 1
            for verb in (
                lambda: folder.get("swap/canary"),
                lambda: folder.put("swap/canary", b"inside"),
                lambda: folder.put("swap/new", b"inside"),
                lambda: folder.delete("swap/new", "swap/deep/canary"),
            ):
                with contextlib.suppress(ObjectNotFound, KeyConflict):
                    seen.add(await verb())
            seen |= {info.key async for info in folder.list("swap")}
    finally:
        stop.set()
        attacker.join()
    assert swaps > 100
    assert CANARY not in seen
    assert b"inside" in seen
    assert "swap/deep/canary" not in seen


async def test_names_that_are_no_keys_are_not_listed(folder: Objects, root: Path) -> None:
    for name in (b"back\\slash", b"new\nline", b"\xff\xfe"):
        (Path(os.fsdecode(bytes(root) + b"/" + name))).write_bytes(b"x")
    await folder.put("a", b"x")
    assert [info.key async for info in folder.list()] == ["a"]


async def test_a_key_below_an_object_and_an_object_over_a_folder_are_refused(folder: Objects) -> None:
    await folder.put("a/b", b"x")
    for key in ("a", "a/b/c"):
        with pytest.raises(KeyConflict):
            await folder.put(key, b"y")
    assert [info.key async for info in folder.list()] == ["a/b"]


async def test_empty_folders_go_and_writers_do_not_mind(folder: Objects, root: Path) -> None:
    async def write_and_remove(number: int) -> None:
        for turn in range(30):
            await folder.put(f"x/y/z/{number}", b"%d" % turn)
            await folder.delete(f"x/y/z/{number}")

    await asyncio.gather(*(write_and_remove(number) for number in range(6)))
    assert [path.name for path in root.iterdir()] == [".callsheet"]


async def test_a_reader_has_one_version_from_beginning_to_end(folder: Objects) -> None:
    first, second = b"1" * 3_000_000, b"2" * 3_000_000
    await folder.put("a", first)
    stream = folder.stream("a")
    begun = await anext(stream)
    await folder.put("a", second)
    assert begun + b"".join([piece async for piece in stream]) == first


async def test_a_put_that_was_killed_leaves_nothing_to_see_and_is_swept(folder: Objects, root: Path) -> None:
    await folder.put("a", b"x")
    temporary = root / ".callsheet/tmp"
    (temporary / "old").write_bytes(b"half")
    (temporary / "young").write_bytes(b"half")
    os.utime(temporary / "old", (0, time.time() - 2 * 24 * 3600))
    again = objects_from_url(f"file://{root}")
    assert [info.key async for info in again.list()] == ["a"]
    assert sorted(path.name for path in temporary.iterdir()) == ["young"]
    await again.close()


async def test_two_openings_of_one_folder_agree_on_who_was_first(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = objects_from_url(f"file://{root}"), objects_from_url(f"file://{root}")
    look = Tree.stat

    def look_and_linger(tree: Tree, key: str) -> os.stat_result:
        try:
            return look(tree, key)
        finally:
            time.sleep(0.003)  # so that the other side looks, too, before this one has written

    monkeypatch.setattr(Tree, "stat", look_and_linger)
    for turn in range(10):
        answers = await asyncio.gather(
            *(side.put(f"k{turn}", b"x", only_if_absent=True) for side in (one, two)), return_exceptions=True
        )
        assert sorted(isinstance(answer, ObjectExists) for answer in answers) == [False, True]
    info = await one.put("cas", b"0")
    for turn in range(10):
        answers = await asyncio.gather(
            *(side.put("cas", b"%d" % turn, if_match=info.etag) for side in (one, two)), return_exceptions=True
        )
        assert sum(isinstance(answer, ObjectsError) for answer in answers) == 1
        info = await two.head("cas")
    await one.close()
    await two.close()


async def test_an_upload_is_not_completed_under_a_writer(folder: Objects) -> None:
    upload = await folder.begin_multipart("a", part_bytes=10)
    await folder.put_part(upload, 1, b"0123456789")
    half, go_on = asyncio.Event(), asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield b"01234"
        half.set()
        await go_on.wait()
        yield b"56789"

    writing = asyncio.create_task(folder.put_part(upload, 2, slowly()))
    await half.wait()
    with pytest.raises(UploadBusy):
        await folder.complete_multipart(upload)
    go_on.set()
    await writing
    assert (await folder.complete_multipart(upload)).size_bytes == 20
    with pytest.raises(UploadNotFound):
        await folder.put_part(upload, 2, b"late")
    assert await folder.get("a") == b"0123456789" * 2


async def test_an_upload_s_id_is_no_path(folder: Objects, outside: Path) -> None:
    upload = await folder.begin_multipart("a", part_bytes=10)
    for upload_id in (
        "../../../outside",
        "..",
        "",
        "a/b",
        upload.upload_id.upper() + "x",
        f"../uploads/{upload.upload_id}",
    ):
        wrong = upload._replace(upload_id=upload_id)
        with pytest.raises(UploadNotFound):
            await folder.put_part(wrong, 1, b"x")
        with pytest.raises(UploadNotFound):
            await folder.list_parts(wrong)
        with pytest.raises(UploadNotFound):
            await folder.complete_multipart(wrong)
        await folder.abort_multipart(wrong)


async def test_a_cancelled_put_leaves_nothing(folder: Objects, root: Path) -> None:
    has_begun = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 100_000
            has_begun.set()

    putting = asyncio.create_task(folder.put("a", endless()))
    await has_begun.wait()
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting
    assert not list((root / ".callsheet/tmp").iterdir())
    assert not await folder.exists("a")


@pytest.mark.parametrize(
    ("number", "known"),
    [
        (errno.EACCES, ObjectsForbidden),
        (errno.EROFS, ObjectsUnavailable),
        (errno.ENOSPC, ObjectsUnavailable),
        (errno.EIO, ObjectsUnavailable),
        (errno.EMFILE, ObjectsUnavailable),
        (errno.EISDIR, KeyConflict),
    ],
)
async def test_what_the_system_refuses_is_told_as_what_it_is(
    folder: Objects, monkeypatch: pytest.MonkeyPatch, number: int, known: type[ObjectsError]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, "no")

    await folder.put("a", b"old")
    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(known):
        await folder.put("a", b"new")
    monkeypatch.undo()
    assert await folder.get("a") == b"old"


def test_a_walk_is_in_the_order_of_the_keys(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    for name in ("b", "a-b", "a/b/c", "a.b", "a/b-c", "a0"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    keys_walked = [entry.key for entry in tree.walk([])]
    assert keys_walked == sorted(keys_walked, key=str.encode)
    assert len(keys_walked) == 6
    tree.close()


def test_two_who_list_a_folder_at_once_both_see_all_of_it(tmp_path: Path) -> None:
    """A shared descriptor would share its position: the second missed what the first had read."""
    for n in range(40):
        (tmp_path / f"{n:02}").write_bytes(b"x")
    held = os.open(tmp_path, FOLDER)
    try:
        first = _children(held, [])
        begun = next(first)
        second = {name for name, _ in _children(held, [])}
        assert second == {begun[0], *(name for name, _ in first)}
        assert len(second) == 40
    finally:
        os.close(held)
