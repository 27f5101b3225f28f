from __future__ import annotations

import asyncio
import json
import time
import uuid

import pytest

from callsheet.catalog import open_catalog
from callsheet.catalog.protocol import Catalog
from callsheet.catalog.records import SERVICE, VideoFacts, VideoPage, VideoStatus
from callsheet.kernel.errors import InvalidInput
from tests.catalog.kit import ANN, added, ready, video, writer


async def test_a_video_is_read_as_it_was_written(catalog: Catalog) -> None:
    whole = video(
        team_id="crew",
        title="Été 2030 👋",
        status=VideoStatus.UPLOADING,
        s3_proxy_path="p",
        s3_thumb_path="t",
        size_bytes=5_000_000_000,
        duration_ms=61_234,
        width=1920,
        height=1080,
        fps=29.97,
        coverage='{"kept": 3}',
        options='{"languages": ["eng"]}',
        jobs='{"ocr": "x"}',
        error='{"type": "x"}',
        created_at=1_800_000_000_123,
        updated_at=1_800_000_000_456,
    )
    await catalog.add_video(whole)
    read = await catalog.video(whole.video_id, SERVICE)
    assert read is not None
    for name in ("coverage", "options", "jobs", "error"):
        assert json.loads(getattr(read, name)) == json.loads(getattr(whole, name))
    assert read._replace(coverage="", options="", jobs="", error="") == whole._replace(
        coverage="", options="", jobs="", error=""
    )


async def test_a_video_gets_the_time_that_it_was_added(catalog: Catalog) -> None:
    before = time.time_ns() // 1_000_000
    new = await added(catalog)
    read = await catalog.video(new.video_id, SERVICE)
    assert read is not None
    assert before - 1 <= read.created_at == read.updated_at <= time.time_ns() // 1_000_000 + 1


async def test_of_many_that_add_the_same_video_one_wins(catalog: Catalog, url: str) -> None:
    others = [open_catalog(url) for _ in range(3)]
    for other in others:
        await other.open()
    try:
        new = video()
        tries = [new._replace(title=f"by {n}") for n in range(20)]
        winners = await asyncio.gather(*(others[n % 3].add_video(one) for n, one in enumerate(tries)))
        assert sum(winners) == 1
        read = await catalog.video(new.video_id, SERVICE)
        assert read is not None
        assert read.title == f"by {winners.index(True)}"
    finally:
        for other in others:
            await other.close()


async def test_known_ids_are_told_apart(catalog: Catalog) -> None:
    one = await added(catalog)
    other = str(uuid.uuid4())
    assert await catalog.known([one.video_id, other, "no id", one.video_id.upper()]) == {one.video_id}
    assert await catalog.known([]) == set()


async def test_an_id_that_is_no_uuid_names_no_video(catalog: Catalog) -> None:
    for odd in ("", "x", "'; DROP TABLE videos --", "\0", "7" * 36, "../../etc/passwd"):
        with pytest.raises(InvalidInput, match="UUID"):
            await catalog.add_video(video()._replace(video_id=odd))
        assert await catalog.video(odd, SERVICE) is None
        assert await catalog.begin(odd, writer(), "ocr") is None
        assert await catalog.segments_of(odd, SERVICE) == []
        await catalog.delete_video(odd)
        await catalog.queue(odd)


async def test_an_id_is_the_same_in_either_case(catalog: Catalog) -> None:
    new = video()
    await catalog.add_video(new._replace(video_id=new.video_id.upper()))
    assert not await catalog.add_video(new)
    result = await catalog.video(new.video_id.upper(), SERVICE)
    assert result is not None
    assert result.video_id == new.video_id


async def test_titles_may_hold_any_text(catalog: Catalog) -> None:
    for odd in ("a\0b", "\ud800", "%_'\"\\", "x" * 5_000, ""):
        new = await added(catalog, title=odd)
        read = await catalog.video(new.video_id, SERVICE)
        assert read is not None
        assert len(read.title) == len(odd)


async def test_what_is_no_json_is_refused(catalog: Catalog) -> None:
    for odd in ("", "{", "[]", "1", '{"a": "\\u0000"}'):
        with pytest.raises(InvalidInput, match="JSON"):
            await catalog.add_video(video(coverage=odd))
        new = await added(catalog)
        with pytest.raises(InvalidInput, match="JSON"):
            await catalog.note(new.video_id, writer(), VideoFacts(coverage=odd))
        with pytest.raises(InvalidInput, match="JSON"):
            await catalog.fail(new.video_id, writer(), odd)


async def test_pages_go_from_the_newest_to_the_oldest_and_miss_nothing(catalog: Catalog) -> None:
    times = [1_800_000_000_000 + n // 3 for n in range(20)]  # three at the same moment
    videos = [await added(catalog, created_at=at) for at in times]
    wanted_ids = [v.video_id for v in sorted(videos, key=lambda v: (v.created_at, v.video_id), reverse=True)]
    for reader in (SERVICE, ANN):
        seen: list[str] = []
        before = None
        while page := await catalog.videos(VideoPage(limit=3, before=before), reader):
            seen += [v.video_id for v in page]
            before = seen[-1]
        assert seen == wanted_ids


async def test_a_page_after_a_video_that_is_gone_is_refused(catalog: Catalog) -> None:
    with pytest.raises(InvalidInput, match="first page"):
        await catalog.videos(VideoPage(before=str(uuid.uuid4())), SERVICE)
    for limit in (0, -1, 100_000):
        with pytest.raises(InvalidInput, match="a page has"):
            await catalog.videos(VideoPage(limit=limit), SERVICE)


async def test_pages_are_filtered_by_status_and_title(catalog: Catalog) -> None:
    a = await added(catalog, title="Straße nach Süden", status=VideoStatus.FAILED)
    b = await added(catalog, title="100 % KÄSE_2")
    for reader in (SERVICE, ANN):
        for text, expected_ids in {
            "STRASSE": {a},
            "süd": {a},
            "käse": {b},
            "%": {b},
            "_": {b},
            "x": set(),
            "": {a, b},
        }.items():
            titles = {v.title for v in await catalog.videos(VideoPage(text=text), reader)}
            assert titles == {v.title for v in expected_ids}, text
        failed = await catalog.videos(VideoPage(status=VideoStatus.FAILED), reader)
        assert [v.video_id for v in failed] == [a.video_id]


async def test_a_stage_notes_what_it_found_out_and_leaves_the_rest(catalog: Catalog) -> None:
    new = await added(catalog)
    await catalog.begin(new.video_id, writer(), "transcode")
    await catalog.note(new.video_id, writer(), VideoFacts(s3_proxy_path="a", width=640, coverage='{"kept": 1}'))
    await catalog.note(new.video_id, writer(), VideoFacts(width=1280, duration_ms=5, fps=25.0))
    read = await catalog.video(new.video_id, SERVICE)
    assert read is not None
    assert (read.s3_proxy_path, read.width, read.duration_ms, read.fps) == ("a", 1280, 5, 25.0)
    assert json.loads(read.coverage) == {"kept": 1}
    assert read.s3_thumb_path is None


async def test_an_upload_that_is_complete_is_queued(catalog: Catalog) -> None:
    new = await added(catalog, status=VideoStatus.UPLOADING)
    await catalog.queue(new.video_id, 77)
    read = await catalog.video(new.video_id, SERVICE)
    assert read is not None
    assert (read.status, read.size_bytes) == (VideoStatus.QUEUED, 77)


async def test_a_failed_video_is_queued_again_without_its_error(catalog: Catalog) -> None:
    new = await added(catalog)
    await catalog.begin(new.video_id, writer(), "ocr")
    await catalog.fail(new.video_id, writer(), '{"type": "Broken"}')
    failed = await catalog.video(new.video_id, SERVICE)
    assert failed is not None
    assert (failed.status, json.loads(failed.error or "")) == (VideoStatus.FAILED, {"type": "Broken"})
    await catalog.queue(new.video_id)
    again = await catalog.video(new.video_id, SERVICE)
    assert again is not None
    assert (again.status, again.error) == (VideoStatus.QUEUED, None)


async def test_only_what_waits_or_failed_is_queued(catalog: Catalog) -> None:
    done_video = await ready(catalog, "hello")
    runs = await added(catalog)
    await catalog.begin(runs.video_id, writer(), "ocr")
    for new, status in ((done_video, VideoStatus.READY), (runs, VideoStatus.PROCESSING)):
        await catalog.queue(new.video_id)
        read = await catalog.video(new.video_id, SERVICE)
        assert read is not None
        assert read.status is status


async def test_a_video_that_is_ready_stays_so_while_it_is_made_again(catalog: Catalog) -> None:
    new = await ready(catalog, "hello")
    attempt = await catalog.begin(new.video_id, writer(2), "ocr")
    assert attempt is not None
    assert attempt.status is VideoStatus.READY
    await catalog.fail(new.video_id, writer(2), '{"type": "Broken"}')
    read = await catalog.video(new.video_id, SERVICE)
    assert read is not None
    assert read.status is VideoStatus.READY
