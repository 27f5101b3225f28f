"""Sources from URLs: guarded, bounded, resumed; and an attempt that has no source leaves none of it behind."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from callsheet.contracts.euterpe import download, pace
from callsheet.contracts.euterpe.download import CutOff, Downloads, Refused, Taken
from callsheet.media.errors import DiskFull
from callsheet.net.guard import BlockedTarget, InvalidTarget, Rules
from callsheet.objects.errors import ObjectTooLarge
from tests.outbox.sink import RULES, Behave, Got, Sink, answer

RAW = bytes(range(256)) * 2_000
DIGEST = hashlib.sha256(RAW).hexdigest()


@pytest.fixture(autouse=True)
def _in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "PAUSE_S", 0.001)


OTHER = RAW[::-1]


def part(*, etag: str = '"one"', cut_at: int | None = None, ranges: bool = True, raw: bytes = RAW) -> Behave:
    """Serve part of the file, break off, and resume on a range request."""

    async def behave(_: Sink, request: Got, writer: asyncio.StreamWriter) -> None:
        range_wanted = request.headers.get("range", "")
        same = request.headers.get("if-range") in {None, etag}
        start = int(range_wanted.removeprefix("bytes=").rstrip("-")) if range_wanted and same and ranges else 0
        head = [f"Content-Length: {len(raw) - start}", f"ETag: {etag}", "Connection: close"]
        head += [f"Content-Range: bytes {start}-{len(raw) - 1}/{len(raw)}"] if start else []
        writer.write("\r\n".join([f"HTTP/1.1 {206 if start else 200} OK", *head, "", ""]).encode())
        writer.write(raw[start:cut_at])
        await writer.drain()

    return behave


async def take(url: str, folder: Path, *, max_bytes: int = 10**9, **more: Any) -> Taken:
    rules: Rules = more.get("rules", RULES)
    downloads = Downloads(rules, resolve=more.get("resolve"))
    room = more.get("room", lambda _: None)
    return await downloads.take(url, folder / "source", max_bytes, room, lambda _, __: None)


async def test_a_source_that_breaks_off_is_taken_up_where_it_broke_off(tmp_path: Path) -> None:
    async with Sink(part(cut_at=100_000), part(cut_at=300_000), part()) as sink:
        assert await take(sink.url, tmp_path) == (len(RAW), DIGEST)
        assert [request.headers.get("range") for request in sink.got] == [None, "bytes=100000-", "bytes=300000-"]
    assert (tmp_path / "source").read_bytes() == RAW


@pytest.mark.parametrize("second", [part(etag='"two"', raw=OTHER), part(etag='"two"', ranges=False, raw=OTHER)])
async def test_a_source_that_changed_or_knows_no_ranges_begins_anew(tmp_path: Path, second: Behave) -> None:
    async with Sink(part(cut_at=100_000), second) as sink:
        assert await take(sink.url, tmp_path) == (len(OTHER), hashlib.sha256(OTHER).hexdigest())
    assert (tmp_path / "source").read_bytes() == OTHER


async def test_a_source_that_never_comes_is_given_up(tmp_path: Path) -> None:
    async with Sink(part(cut_at=0)) as sink:
        with pytest.raises(CutOff):
            await take(sink.url, tmp_path)
        assert len(sink.got) == download.TRIES


async def _drips(_: Sink, __: Got, writer: asyncio.StreamWriter) -> None:
    """Serve a byte at intervals and never finish."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    with contextlib.suppress(OSError):
        while not writer.is_closing():
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)


async def _cuts(_: Sink, __: Got, writer: asyncio.StreamWriter) -> None:
    """One that sends a byte of a new version and breaks off, each time."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\nConnection: close\r\n\r\nx")
    await writer.drain()


@pytest.mark.parametrize("behave", [_drips, _cuts])
async def test_a_source_that_comes_too_slowly_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behave: Behave
) -> None:
    monkeypatch.setattr(pace, "GRACE_S", 0.2)
    monkeypatch.setattr(download, "TRIES", sys.maxsize)  # the pace alone ends it, however quickly tries follow
    async with Sink(behave) as sink:
        with pytest.raises(CutOff, match="too slowly"):
            await take(sink.url, tmp_path)


async def test_bytes_that_come_give_more_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server sends the second half after the start-up grace."""
    monkeypatch.setattr(pace, "GRACE_S", 1.0)
    monkeypatch.setattr(pace, "LEAST_BYTES_S", len(RAW) // 200)
    loop = asyncio.get_running_loop()

    async def in_two_parts(_: Sink, __: Got, writer: asyncio.StreamWriter) -> None:
        half, begun = len(RAW) // 2, loop.time()
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(RAW)}\r\n\r\n".encode() + RAW[:half])
        await writer.drain()
        await asyncio.sleep(begun + 1.5 - loop.time())
        writer.write(RAW[half:])
        await writer.drain()

    async with Sink(in_two_parts) as sink:
        assert await take(sink.url, tmp_path) == (len(RAW), DIGEST)


async def test_a_storage_that_takes_outputs_has_time_by_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pace.time_for(32 * 1024, 3) == pace.GRACE_S + 8
    with pytest.raises(CutOff, match="slow"):
        async with pace.minimum_pace(CutOff("slow"), 0.0):
            await asyncio.Event().wait()
    with pytest.raises(TimeoutError):  # that is not our own
        async with pace.minimum_pace(CutOff("slow")):
            raise TimeoutError


async def test_a_size_over_the_limit_is_refused_by_its_header(tmp_path: Path) -> None:
    async with Sink(part(cut_at=0)) as sink:
        with pytest.raises(ObjectTooLarge):
            await take(sink.url, tmp_path, max_bytes=len(RAW) - 1)
        assert len(sink.got) == 1


async def test_a_size_that_nobody_told_is_counted_while_it_comes(tmp_path: Path) -> None:
    async def endless(_: Sink, __: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"10000\r\n" + bytes(0x10000) + b"\r\n")
            await writer.drain()

    async with Sink(endless) as sink:
        with pytest.raises(ObjectTooLarge):
            await take(sink.url, tmp_path, max_bytes=1_000_000)
    assert (tmp_path / "source").stat().st_size <= 1_000_000


async def test_a_disk_without_room_is_told_before_the_first_byte(tmp_path: Path) -> None:
    def none(size_bytes: int) -> None:
        raise DiskFull(f"{size_bytes} bytes")

    async with Sink(part()) as sink:
        with pytest.raises(DiskFull):
            await take(sink.url, tmp_path, room=none)
    assert (tmp_path / "source").stat().st_size == 0


@pytest.mark.parametrize(
    ("status", "body", "stale"),
    [
        ("401 No", b"", True),
        ("403 No", b"", True),
        ("400 No", b"<Code>ExpiredToken</Code>", True),
        ("400 No", b"<Code>AccessDenied</Code><Message>Request has expired</Message>", True),
        ("403 No", b"<Code>RequestTimeTooSkewed</Code>", False),
        ("404 No", b"", False),
        ("302 Found", b"", False),
        ("503 No", b"", False),
    ],
)
async def test_an_answer_says_whether_a_newer_url_may_help(
    tmp_path: Path, status: str, body: bytes, *, stale: bool
) -> None:
    async with Sink(answer(status, body, Location="http://127.0.0.1:1/")) as sink:
        with pytest.raises(Refused) as excinfo:
            await take(f"{sink.url}?signature=secret", tmp_path)
        assert (excinfo.value.status, excinfo.value.stale) == (int(status[:3]), stale)
        assert "secret" not in str(excinfo.value)
        assert len(sink.got) == 1  # no redirect is followed


async def test_a_name_that_leads_inside_is_not_connected_to(tmp_path: Path) -> None:
    async def inside(_: str, __: int) -> Sequence[str]:
        return ["127.0.0.1"]

    async with Sink(part()) as sink:
        with pytest.raises(BlockedTarget):
            await take(
                f"http://cdn.example.org:{sink.port}/a", tmp_path, rules=Rules(http=True, any_port=True), resolve=inside
            )
        assert sink.connections == 0


async def test_a_name_is_judged_at_every_connection(tmp_path: Path) -> None:
    """What a name means may change between two connections of one download."""
    answers = [["127.0.0.1"], ["10.0.0.1"]]

    async def changing(_: str, __: int) -> Sequence[str]:
        return answers.pop(0)

    async with Sink(part(cut_at=1_000)) as sink:
        with pytest.raises(BlockedTarget):
            await take(f"http://cdn.example.org:{sink.port}/a", tmp_path, resolve=changing)
        assert sink.connections == 1


@pytest.mark.parametrize("url", ["http://cdn.example.org/a", "https://10.0.0.1/a", "https://u:p@cdn.example.org/a"])
async def test_a_url_against_the_rules_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(InvalidTarget):
        await take(url, tmp_path, rules=Rules())
