from __future__ import annotations

import pytest

from callsheet.catalog.protocol import Catalog
from callsheet.catalog.records import SERVICE
from callsheet.kernel.errors import InvalidInput
from tests.catalog.kit import ANN, BOB, added, clip, video


async def test_a_clip_is_entered_once(catalog: Catalog) -> None:
    of = await added(catalog)
    one = clip(of, created_at=1_800_000_000_123)
    assert await catalog.add_clip(one) == one
    assert await catalog.add_clip(one._replace(t_end=9_000, owner_id="bob")) == one
    assert await catalog.clip(one.clip_id, ANN) == one
    assert await catalog.clip(one.clip_id, BOB) is None
    assert await catalog.clip("none", SERVICE) is None


async def test_a_clip_needs_its_video(catalog: Catalog) -> None:
    with pytest.raises(InvalidInput, match="no video"):
        await catalog.add_clip(clip(video()))
    of = await added(catalog)
    for odd in (
        clip(of, t_start=5, t_end=5),
        clip(of, t_start=-1),
        clip(of, padding_ms=-1),
        clip(of, clip_id="x" * 300),
        clip(of)._replace(video_id="none"),
        clip(of)._replace(clip_id=""),
    ):
        with pytest.raises(InvalidInput):
            await catalog.add_clip(odd)


async def test_clips_of_a_video_are_told_newest_first_and_go_with_it(catalog: Catalog) -> None:
    of = await added(catalog)
    clips = [await catalog.add_clip(clip(of, created_at=1_800_000_000_000 + n)) for n in range(3)]
    assert await catalog.clips_of(of.video_id, ANN) == clips[::-1]
    await catalog.delete_video(of.video_id)
    assert await catalog.clips_of(of.video_id, SERVICE) == []
    assert await catalog.clip(clips[0].clip_id, SERVICE) is None


async def test_clips_expire(catalog: Catalog) -> None:
    of = await added(catalog)
    clips = [await catalog.add_clip(clip(of)) for _ in range(4)]
    for n, one in enumerate(clips[:3]):
        await catalog.note_clip(one.clip_id, (0, 5_000 + n), 2_000 - n)
    read = await catalog.clip(clips[2].clip_id, ANN)
    assert read is not None
    assert (read.actual_start, read.actual_end, read.expires_at) == (0, 5_002, 1_998)
    assert await catalog.expired_clips(1_997, 10) == []
    assert [c.clip_id for c in await catalog.expired_clips(1_999, 10)] == [clips[2].clip_id, clips[1].clip_id]
    assert [c.clip_id for c in await catalog.expired_clips(9_999, 1)] == [clips[2].clip_id]
    await catalog.delete_clips([clips[1].clip_id, clips[2].clip_id, "none"])
    await catalog.delete_clips([])
    assert [c.clip_id for c in await catalog.expired_clips(9_999, 10)] == [clips[0].clip_id]
    assert await catalog.clip(clips[3].clip_id, ANN) is not None
