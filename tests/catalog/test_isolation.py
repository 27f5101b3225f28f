"""Visibility of videos, equal on every database: a reader's own videos and the team's.

PostgreSQL's policies: test_row_security.
"""

from __future__ import annotations

import pytest

from callsheet.catalog.protocol import Catalog
from callsheet.catalog.records import SERVICE, Reader, Video, VideoPage
from callsheet.catalog.search.records import Query
from callsheet.kernel.errors import InvalidInput
from tests.catalog.kit import ANN, BOB, CREW, NOBODY, clip, ready

READERS = {"ann": ANN, "bob": BOB, "crew": CREW, "nobody": NOBODY, "service": SERVICE, "others": Reader("x", ("y",))}
SEES = {
    "ann": {"hers", "crew's"},
    "bob": {"his"},
    "crew": {"crew's", "cast's"},
    "nobody": set(),
    "service": {"hers", "crew's", "his", "cast's", "ownerless"},
    "others": set(),
}


async def made(catalog: Catalog) -> dict[str, Video]:
    return {
        "hers": await ready(catalog, "hello #one", owner_id="ann"),
        "crew's": await ready(catalog, "hello #two", owner_id="ann", team_id="crew"),
        "his": await ready(catalog, "hello #three", owner_id="bob"),
        "cast's": await ready(catalog, "hello #four", owner_id="dan", team_id="cast"),
        "ownerless": await ready(catalog, "hello #five", owner_id=""),
    }


@pytest.mark.parametrize("who", READERS)
async def test_a_reader_sees_his_own_and_his_teams(catalog: Catalog, who: str) -> None:
    videos, reader = await made(catalog), READERS[who]
    wanted_ids = {videos[name].video_id for name in SEES[who]}
    for video in videos.values():
        await catalog.add_clip(clip(video, clip_id=f"clip of {video.video_id}"))
    assert {v.video_id for v in await catalog.videos(VideoPage(), reader)} == wanted_ids
    assert {hit.video_id for hit in (await catalog.search(Query("hello"), reader)).hits} == wanted_ids
    assert bool(await catalog.suggest("hel", 5, reader)) is bool(wanted_ids)
    for video in videos.values():
        video_id, seen = video.video_id, video.video_id in wanted_ids
        assert (await catalog.video(video_id, reader) is not None) is seen
        assert len(await catalog.segments_of(video_id, reader)) == seen
        assert len(await catalog.entities_of(video_id, reader)) == seen
        assert len(await catalog.clips_of(video_id, reader)) == seen
        assert (await catalog.clip(f"clip of {video_id}", reader) is not None) is seen


async def test_a_page_does_not_go_on_from_what_the_reader_may_not_see(catalog: Catalog) -> None:
    videos = await made(catalog)
    with pytest.raises(InvalidInput):
        await catalog.videos(VideoPage(before=videos["hers"].video_id), BOB)


async def test_names_that_look_like_sql_are_names(catalog: Catalog) -> None:
    await made(catalog)
    for odd in ("' OR 1=1 --", "%", "ann\0", '"]', "*"):
        reader = Reader(odd, (odd, '"crew'))
        assert await catalog.videos(VideoPage(), reader) == []
        assert (await catalog.search(Query("hello"), reader)).hits == ()
