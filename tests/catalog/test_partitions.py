"""The documented way to partition `segments` by video."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import asyncpg
import pytest

from callsheet.catalog import migrate_catalog, open_catalog
from callsheet.catalog.records import SERVICE
from callsheet.catalog.search.records import Query
from tests import stores
from tests.catalog.kit import ANN, BOB, ready, segment, writer

SCRIPT = files("callsheet.catalog.postgres").joinpath("partition_segments.sql").read_text("utf-8")


async def test_a_partitioned_catalogue_works_as_before() -> None:
    url = stores.fresh_url("postgres")
    await migrate_catalog(url)
    catalog = open_catalog(url)
    await catalog.open()
    videos = [await ready(catalog, f"text {n} #tag") for n in range(20)]
    before = [await catalog.segments_of(video.video_id, ANN) for video in videos]
    await catalog.close()  # no worker runs
    session = await asyncpg.connect(url)
    async with session.transaction():
        await session.execute(SCRIPT)
    try:
        assert await migrate_catalog(url) == ["catalogue access"]
        assert await session.fetchval("SELECT count(DISTINCT tableoid) FROM segments") > 1
        await catalog.open()
        assert [await catalog.segments_of(video.video_id, ANN) for video in videos] == before
        assert await catalog.segments_of(videos[0].video_id, BOB) == []
        await catalog.begin(videos[0].video_id, writer(2), "ocr")
        await catalog.add_detections(videos[0].video_id, writer(2), [segment("raw")] * 2)
        await catalog.replace_segments(videos[0].video_id, writer(2), [segment("fresh")], [])
        assert len((await catalog.search(Query("fresh"), ANN)).hits) == 1
        await catalog.delete_video(videos[1].video_id)
        assert await catalog.segments_of(videos[1].video_id, SERVICE) == []
        await _reads_one_partition(session, videos[2].video_id)
        await _shows_no_partition(session, videos[2].video_id)
    finally:
        await catalog.close()
        await session.close()


async def _reads_one_partition(session: Any, video_id: str) -> None:
    lines = await session.fetch(f"EXPLAIN SELECT * FROM segments WHERE video_id = '{video_id}' ORDER BY t_start")
    assert sum(" on segments_" in line for (line,) in lines) == 1


async def _shows_no_partition(session: Any, video_id: str) -> None:
    await session.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO authenticated")
    place = await session.fetchval(f"SELECT tableoid::regclass::text FROM segments WHERE video_id = '{video_id}'")
    async with session.transaction():
        await session.execute("SET LOCAL ROLE authenticated")
        await session.execute("""SELECT set_config('request.jwt.claims', '{"sub": "ann"}', true)""")
        assert await session.fetchval("SELECT count(*) FROM segments") == 19
        assert await session.fetchval(f"SELECT count(*) FROM {place}") == 0
        await session.execute("""SELECT set_config('request.jwt.claims', '{"sub": "bob"}', true)""")
        assert await session.fetchval("SELECT count(*) FROM segments") == 0
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        async with session.transaction():
            await session.execute("SET LOCAL ROLE anon")
            await session.fetchval("SELECT count(*) FROM segments")
