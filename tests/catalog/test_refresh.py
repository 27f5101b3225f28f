"""`search_materialized`: the search index, and its refresh."""

from __future__ import annotations

import asyncio

import pytest

from callsheet.catalog import open_catalog
from callsheet.catalog.postgres.store import PostgresCatalog
from callsheet.catalog.protocol import Catalog
from callsheet.catalog.records import MOST_PX, Box
from callsheet.catalog.search.records import Query
from callsheet.kernel.errors import StoreError
from tests.catalog.kit import ANN, added, ready, segment, writer
from tests.catalog.sql import run

ROWS = "SELECT row_id, title, text FROM search_materialized ORDER BY row_id"


async def test_only_merged_text_is_searched(catalog: Catalog) -> None:
    new = await added(catalog, title="Trip")
    await catalog.begin(new.video_id, writer(), "ocr")
    await catalog.add_detections(new.video_id, writer(), [segment("raw")])
    assert await run(catalog, ROWS) == []
    await catalog.replace_segments(new.video_id, writer(), [segment("merged")], [])
    ((_, title, text),) = await run(catalog, ROWS)
    assert (title, text) == ("Trip", "merged")


async def test_a_refresh_of_what_is_up_to_date_changes_nothing(catalog: Catalog) -> None:
    await ready(catalog, "one", "two")
    before = await run(catalog, ROWS)
    assert await catalog.refresh_search() == 0
    assert await run(catalog, ROWS) == before


async def test_a_video_that_was_changed_by_hand_is_brought_up_to_date(catalog: Catalog) -> None:
    await ready(catalog, "alpha", "beta")
    await run(catalog, "UPDATE segments SET text = 'gamma', normalized_text = 'gamma' WHERE text = 'alpha'")
    await run(catalog, "UPDATE videos SET search_stale = (1 = 1)")
    assert await catalog.refresh_search() == 1
    assert {text for _, _, text in await run(catalog, ROWS)} == {"beta", "gamma"}
    for word, hits in {"alpha": 0, "beta": 1, "gamma": 1}.items():
        assert len((await catalog.search(Query(word, mode="exact"), ANN)).hits) == hits, word
    assert await catalog.refresh_search() == 0


@pytest.mark.parametrize(
    ("box_text", "read"),
    [
        ('{"x": 60, "y": 170.5, "width": 400.25, "height": 40}', Box(60, 170, 400, 40)),
        ('{"x": 1, "y": 2, "width": 3, "height": 4, "unit": "px"}', Box(1, 2, 3, 4)),
        ('{"x": "1", "y": null, "width": 1e300}', Box(0, 0, MOST_PX, 0)),
        ("[1, 2, 3, 4]", Box(0, 0, 0, 0)),
    ],
)
async def test_a_box_as_a_worker_by_sql_writes_it_is_read(catalog: Catalog, box_text: str, read: Box) -> None:
    new = await ready(catalog, "alpha")
    await run(catalog, f"UPDATE segments SET bounding_box = '{box_text}'")
    await run(catalog, "UPDATE videos SET search_stale = (1 = 1)")
    await catalog.refresh_search()
    assert [row.bounding_box for row in await catalog.segments_of(new.video_id, ANN)] == [read]
    assert [hit.box for hit in (await catalog.search(Query("alpha"), ANN)).hits] == [read]


async def test_many_refreshes_at_once_do_each_video_once(catalog: Catalog, url: str) -> None:
    for n in range(6):
        await ready(catalog, f"text {n}", "same")
    await run(catalog, "UPDATE segments SET t_end = t_end + 1")
    await run(catalog, "UPDATE videos SET search_stale = (1 = 1)")
    other = open_catalog(url)
    await other.open()
    try:
        await asyncio.gather(*(one.refresh_search() for one in (catalog, other) * 3))
    finally:
        await other.close()
    assert await run(catalog, "SELECT count(*), count(DISTINCT segment_id) FROM search_materialized") == [(12, 12)]
    assert (
        await run(
            catalog,
            "SELECT 1 FROM search_materialized m JOIN segments s USING (video_id, segment_id) WHERE m.t_end <> s.t_end",
        )
        == []
    )
    assert (await catalog.search(Query("same"), ANN)).total == 6


async def test_the_contracts_function_keeps_rows_that_did_not_change(catalog: Catalog) -> None:
    if not isinstance(catalog, PostgresCatalog):
        return  # SQLite has no functions: refresh_search is all there is
    await ready(catalog, "stays", "goes")
    before = {text: row_id for row_id, _, text in await run(catalog, ROWS)}
    assert await run(catalog, "SELECT refresh_search_materialized()") == [(0,)]
    await run(catalog, "UPDATE segments SET text = 'comes', normalized_text = 'comes' WHERE text = 'goes'")
    await run(catalog, "UPDATE videos SET search_stale = true")
    assert await run(catalog, "SELECT refresh_search_materialized()") == [(1,)]
    after = {text: row_id for row_id, _, text in await run(catalog, ROWS)}
    assert after.keys() == {"stays", "comes"}
    assert after["stays"] == before["stays"]
    assert await run(catalog, "SELECT search_stale, search_unindexed FROM videos") == [(False, True)]
    assert await catalog.refresh_search() == 1
    assert len((await catalog.search(Query("comes"), ANN)).hits) == 1


SEGMENT = (
    "INSERT INTO segments (video_id, owner_id, team_id, text, normalized_text, text_hash, t_start, t_end, confidence,"
    " bounding_box, language) VALUES ('{}', 'ann', NULL, '{}', '{}', 'h', 0, 900, 0.9,"
    """ '{{"x": 1, "y": 2, "width": 3, "height": 4}}', 'en') RETURNING segment_id"""
)


async def found(catalog: Catalog, word: str) -> int:
    return len((await catalog.search(Query(word, mode="exact"), ANN)).hits)


async def test_what_sql_inserts_changes_and_deletes_is_followed(catalog: Catalog) -> None:
    if not isinstance(catalog, PostgresCatalog):
        return  # SQLite has no roles: nobody but the program writes there
    new = await added(catalog)
    ((segment_id,),) = await run(catalog, SEGMENT.format(new.video_id, "Call @Ann", "call @ann"))
    entity = "INSERT INTO entities (segment_id, entity_type, value, normalized_value)"
    await run(catalog, f"{entity} VALUES ('{segment_id}', 'mention', '@Ann', 'ann')")
    assert await run(catalog, "SELECT video_id::text, owner_id FROM entities") == [(new.video_id, "ann")]
    refresh = "SELECT refresh_search_materialized()"
    assert await run(catalog, refresh) == [(1,)]
    assert await run(catalog, refresh) == [(0,)]
    assert await found(catalog, "call") == 1
    assert await catalog.entities_of(new.video_id, ANN)
    await run(catalog, "UPDATE segments SET text = 'Ring', normalized_text = 'ring'")
    assert await run(catalog, refresh) == [(1,)]
    assert (await found(catalog, "call"), await found(catalog, "ring")) == (0, 1)
    await run(catalog, "UPDATE videos SET title = 'Renamed'")
    assert await run(catalog, refresh) == [(1,)]
    assert [title for _, title, _ in await run(catalog, ROWS)] == ["Renamed"]
    await run(catalog, "DELETE FROM segments")
    assert await run(catalog, refresh) == [(1,)]
    assert (await found(catalog, "ring"), await run(catalog, ROWS)) == (0, [])


async def test_raw_detections_that_are_merged_in_place_are_found_and_others_are_not(catalog: Catalog) -> None:
    if not isinstance(catalog, PostgresCatalog):
        return
    new = await added(catalog)
    await catalog.begin(new.video_id, writer(), "ocr")
    await catalog.add_detections(new.video_id, writer(), [segment("one"), segment("one", 1_000)])
    assert await run(catalog, "SELECT refresh_search_materialized()") == [(0,)]
    await run(catalog, "DELETE FROM segments WHERE t_start > 0")
    await run(catalog, "UPDATE segments SET t_end = 2000")
    assert await run(catalog, "SELECT refresh_search_materialized()") == [(1,)]
    assert await found(catalog, "one") == 1


async def test_an_entity_of_no_segment_is_refused(catalog: Catalog) -> None:
    if not isinstance(catalog, PostgresCatalog):
        return
    insert = "INSERT INTO entities (segment_id, entity_type, value, normalized_value) VALUES ('x', 'url', 'u', 'u')"
    with pytest.raises(StoreError, match="there is no segment x"):
        await run(catalog, insert)
