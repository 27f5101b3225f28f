from __future__ import annotations

import pytest

from callsheet.catalog.protocol import Catalog
from callsheet.catalog.records import SERVICE, Box, VideoStatus
from callsheet.catalog.search.records import Query
from callsheet.kernel.errors import InvalidInput
from tests.catalog.kit import ANN, added, entity, ready, segment, writer


async def test_detections_are_kept_once_and_read_by_time(catalog: Catalog) -> None:
    new = await added(catalog, team_id="crew")
    await catalog.begin(new.video_id, writer(), "ocr")
    one = segment("two", 2_000, bounding_box=Box(1, 2, 3, 4), language=None, confidence=0.5, seen=3)
    batch = [one, segment("one", 1_000)]
    await catalog.add_detections(new.video_id, writer(), batch)
    await catalog.add_detections(
        new.video_id, writer(), [*batch, one._replace(text="changed"), segment("three", 3_000)]
    )
    read = await catalog.detections_of(new.video_id)
    assert [s.text for s in read] == ["one", "two", "three"]
    assert read[1] == (
        one.segment_id,
        new.video_id,
        "ann",
        "crew",
        2_000,
        3_000,
        "two",
        "two",
        one.text_hash,
        0.5,
        Box(1, 2, 3, 4),
        None,
        False,
        3,
    )
    assert await catalog.segments_of(new.video_id, SERVICE) == read
    assert await catalog.segments_of(new.video_id, ANN) == read


async def test_a_batch_of_a_thousand_and_an_empty_one_are_kept(catalog: Catalog) -> None:
    new = await added(catalog)
    await catalog.begin(new.video_id, writer(), "ocr")
    await catalog.add_detections(new.video_id, writer(), [])
    await catalog.add_detections(new.video_id, writer(), [segment(f"line {n}", n) for n in range(1_000)])
    read = await catalog.detections_of(new.video_id)
    assert [s.t_start for s in read] == list(range(1_000))


async def test_a_new_reading_starts_afresh_beside_the_text_that_is_shown(catalog: Catalog) -> None:
    new = await ready(catalog, "shown")
    again = writer(2)
    await catalog.begin(new.video_id, again, "ocr")
    await catalog.add_detections(new.video_id, again, [segment("half a reading")])
    await catalog.clear_detections(new.video_id, again)
    await catalog.add_detections(new.video_id, again, [segment("raw")])
    assert [s.text for s in await catalog.detections_of(new.video_id)] == ["raw"]
    assert [s.text for s in await catalog.segments_of(new.video_id, ANN)] == ["shown"]


async def test_the_whole_text_replaces_what_there_was(catalog: Catalog) -> None:
    new = await ready(catalog, "old text #old")
    again = writer(2)
    await catalog.begin(new.video_id, again, "segment_index")
    await catalog.add_detections(new.video_id, again, [segment("raw")])
    one, two = segment("new #tag @ann", 500, seen=7), segment("later", 100)
    results = [entity(one, "#Tag"), entity(one, "@ann", "mention")]
    for _ in range(2):  # repeating it changes nothing
        await catalog.replace_segments(new.video_id, again, [one, two], results)
        read = await catalog.segments_of(new.video_id, ANN)
        assert [(s.text, s.is_merged, s.seen) for s in read] == [("later", True, 1), ("new #tag @ann", True, 7)]
        assert await catalog.detections_of(new.video_id) == []
        entities = await catalog.entities_of(new.video_id, ANN)
        assert {(e.value, e.normalized_value, e.entity_type, e.t_start, e.t_end) for e in entities} == {
            ("#Tag", "#tag", "hashtag", 500, 1_500),
            ("@ann", "@ann", "mention", 500, 1_500),
        }
    video_now = await catalog.video(new.video_id, SERVICE)
    assert video_now is not None
    assert video_now.status is VideoStatus.READY
    assert [hit.text for hit in (await catalog.search(Query("new"), ANN)).hits] == ["new #tag @ann"]
    assert (await catalog.search(Query("old"), ANN)).hits == ()


async def test_a_video_without_any_text_is_ready_too(catalog: Catalog) -> None:
    new = await ready(catalog)
    video_now = await catalog.video(new.video_id, ANN)
    assert video_now is not None
    assert video_now.status is VideoStatus.READY
    assert await catalog.segments_of(new.video_id, ANN) == []


async def test_text_that_breaks_a_rule_is_refused_whole(catalog: Catalog) -> None:
    new = await ready(catalog, "kept")
    at = writer(2)
    await catalog.begin(new.video_id, at, "segment_index")
    good = segment("good")
    for odd in (
        good._replace(t_start=-1),
        good._replace(t_start=5, t_end=4),
        good._replace(confidence=1.5),
        good._replace(confidence=float("nan")),
        good._replace(segment_id=""),
        good._replace(segment_id="x" * 300),
    ):
        with pytest.raises(InvalidInput):
            await catalog.replace_segments(new.video_id, at, [segment("fine"), odd], [])
        with pytest.raises(InvalidInput):
            await catalog.add_detections(new.video_id, at, [segment("fine"), odd])
    with pytest.raises(InvalidInput, match="not among these"):
        await catalog.replace_segments(new.video_id, at, [], [entity(good, "#a")])
    with pytest.raises(InvalidInput, match="no type of entity"):
        await catalog.replace_segments(new.video_id, at, [good], [entity(good, "#a", "smell")])
    with pytest.raises(InvalidInput, match="same id"):
        await catalog.replace_segments(new.video_id, at, [good, good], [])
    assert [s.text for s in await catalog.segments_of(new.video_id, SERVICE)] == ["kept"]
    assert await catalog.detections_of(new.video_id) == []


async def test_text_of_any_characters_is_kept(catalog: Catalog) -> None:
    new = await added(catalog)
    await catalog.begin(new.video_id, writer(), "segment_index")
    texts = ["nul\0", "\ud83d alone", "日本語 テスト", "e\u0301", "'; --", "a\nb\t", "👩\u200d👧", "\u202eright"]
    await catalog.replace_segments(new.video_id, writer(), [segment(t, n) for n, t in enumerate(texts)], [])
    read = await catalog.segments_of(new.video_id, SERVICE)
    assert [len(s.text) for s in read] == [len(text) for text in texts]
    assert [s.text for s in read[2:]] == texts[2:]


async def test_a_deleted_video_leaves_nothing_behind(catalog: Catalog) -> None:
    gone, kept = await ready(catalog, "both #here"), await ready(catalog, "both #here")
    for _ in range(2):
        await catalog.delete_video(gone.video_id)
        assert await catalog.video(gone.video_id, SERVICE) is None
        assert await catalog.segments_of(gone.video_id, SERVICE) == []
        assert await catalog.entities_of(gone.video_id, SERVICE) == []
        assert [hit.video_id for hit in (await catalog.search(Query("both"), ANN)).hits] == [kept.video_id]
    assert await catalog.add_video(gone)
    assert await catalog.segments_of(gone.video_id, SERVICE) == []
