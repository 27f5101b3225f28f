"""The fence: of several attempts at a video only the latest may write."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from callsheet.catalog.protocol import Catalog
from callsheet.catalog.records import SERVICE, VideoFacts, VideoStatus, Writer
from callsheet.kernel.errors import StaleClaim
from tests.catalog.kit import added, job_id, segment, video, writer

Write = Callable[[Catalog, str, Writer], Awaitable[object]]
NOON = 1_800_000_000_000  # as large as a real time: 32 bits do not hold it
WRITES: dict[str, Write] = {
    "begin": lambda c, v, w: c.begin(v, w, "ocr"),
    "note": lambda c, v, w: c.note(v, w, VideoFacts(width=1)),
    "fail": lambda c, v, w: c.fail(v, w, "{}"),
    "clear_detections": lambda c, v, w: c.clear_detections(v, w),
    "add_detections": lambda c, v, w: c.add_detections(v, w, [segment("late")]),
    "replace_segments": lambda c, v, w: c.replace_segments(v, w, [segment("late")], []),
}


async def test_a_begin_makes_the_video_processing_and_enters_its_job(catalog: Catalog) -> None:
    new = await added(catalog)
    attempt = await catalog.begin(new.video_id, writer(1), "transcode")
    assert attempt is not None
    assert attempt.status is VideoStatus.PROCESSING
    assert attempt.title == new.title
    again = await catalog.begin(new.video_id, writer(2), "sample")
    assert again is not None
    assert json.loads(again.jobs) == {"transcode": job_id(1), "sample": job_id(2)}


async def test_a_begin_of_no_video_is_none(catalog: Catalog) -> None:
    assert await catalog.begin(video().video_id, writer(), "ocr") is None


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        (writer(1, 1), writer(1, 2)),
        (writer(1, 9), writer(2, 1)),
        (writer(2, 9, created_at=NOON), writer(1, 1, created_at=NOON + 1)),  # a worker's clock was behind
        (writer(1, 9, created_at=NOON), writer(2, 1, created_at=NOON)),
        (writer(1, 9, created_at=NOON), writer(2, 1)),
    ],
    ids=["claim", "job", "clock", "same moment", "no clock"],
)
async def test_an_earlier_writer_writes_nothing(catalog: Catalog, earlier: Writer, later: Writer) -> None:
    new = await added(catalog)
    await catalog.begin(new.video_id, earlier, "ocr")
    await catalog.begin(new.video_id, later, "ocr")
    await catalog.add_detections(new.video_id, later, [segment("kept", segment_id="kept")])
    before = await catalog.video(new.video_id, SERVICE)
    for name, write in WRITES.items():
        with pytest.raises(StaleClaim, match="any more"):
            await write(catalog, new.video_id, earlier)
        assert await catalog.video(new.video_id, SERVICE) == before, name
        assert [s.text for s in await catalog.segments_of(new.video_id, SERVICE)] == ["kept"], name


async def test_the_writer_writes_and_may_do_so_again(catalog: Catalog) -> None:
    for write in WRITES.values():
        new = await added(catalog)
        await catalog.begin(new.video_id, writer(), "ocr")
        await write(catalog, new.video_id, writer())
        await write(catalog, new.video_id, writer())


async def test_a_later_writer_that_has_not_begun_shuts_out_the_earlier_one(catalog: Catalog) -> None:
    new = await added(catalog)
    await catalog.begin(new.video_id, writer(1, 1), "ocr")
    await catalog.fail(new.video_id, writer(1, 2), '{"type": "worker_lost"}')
    with pytest.raises(StaleClaim):
        await catalog.note(new.video_id, writer(1, 1), VideoFacts(width=1))


async def test_a_video_that_is_gone_is_not_written(catalog: Catalog) -> None:
    new = await added(catalog)
    await catalog.begin(new.video_id, writer(), "ocr")
    await catalog.delete_video(new.video_id)
    for name in WRITES.keys() - {"begin"}:
        with pytest.raises(StaleClaim):
            await WRITES[name](catalog, new.video_id, writer())
    assert await catalog.segments_of(new.video_id, SERVICE) == []


async def test_of_many_attempts_at_once_the_latest_is_left(catalog: Catalog) -> None:
    new = await added(catalog)
    writers = [writer(number, claim) for number in range(1, 9) for claim in (1, 2)]

    async def attempt(one: Writer) -> bool:
        try:
            await catalog.begin(new.video_id, one, "ocr")
            await catalog.replace_segments(
                new.video_id, one, [segment(f"{one.job_id} {one.claim_version}", segment_id="only")], []
            )
        except StaleClaim:
            return False
        return True

    outcomes = await asyncio.gather(*(attempt(one) for one in writers))
    assert outcomes[-1]
    (left,) = await catalog.segments_of(new.video_id, SERVICE)
    assert left.text == f"{writers[-1].job_id} 2"
