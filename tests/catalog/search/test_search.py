from __future__ import annotations

import asyncio

import pytest

from callsheet.catalog.protocol import Catalog
from callsheet.catalog.records import SERVICE, Box
from callsheet.catalog.search.records import Query
from callsheet.kernel.errors import InvalidInput
from tests.catalog.search.kit import ask, fill, marked, row, texts


async def test_exact_words_stand_before_misread_ones_before_typing_errors_before_longer_words(catalog: Catalog) -> None:
    await fill(catalog, 1, "hello2day", "hallo", "he11o", "hello", "yellow")
    hits = await ask(catalog, "hello")
    assert [hit.text for hit in hits.hits] == ["hello", "he11o", "hallo", "hello2day"]
    assert [marked(hit)[0][1] for hit in hits.hits] == ["exact", "folded", "fuzzy", "prefix"]
    assert [hit.score for hit in hits.hits] == sorted((hit.score for hit in hits.hits), reverse=True)
    assert (hits.total, hits.total_is_exact, hits.cursor) == (4, True, None)
    assert hits.expanded == {"hello": ("hello", "he11o", "hallo", "hello2day")}


async def test_of_equal_hits_the_newer_video_comes_first_then_the_earlier_time(catalog: Catalog) -> None:
    await fill(catalog, 2, "older one", "older two word", "word older")
    await fill(catalog, 1, "word newer", "nothing", "newer word")
    assert await texts(catalog, "word") == ["word newer", "newer word", "older two word", "word older"]


async def test_all_words_must_be_met_and_excluded_ones_must_not(catalog: Catalog) -> None:
    await fill(catalog, 1, "red apple pie", "green apple", "red pie", "apple red wine")
    assert await texts(catalog, "red apple") == ["red apple pie", "apple red wine"]
    assert await texts(catalog, "red apple -wine") == ["red apple pie"]
    assert await texts(catalog, 'apple -"red apple"') == ["green apple", "apple red wine"]
    assert await texts(catalog, "-apple") == ["red pie"]


async def test_a_phrase_is_words_side_by_side(catalog: Catalog) -> None:
    await fill(catalog, 1, "the quick brown fox", "brown quick", "quick, brown!", "quick red brown", "quick", "brown")
    assert await texts(catalog, '"quick brown"') == ["the quick brown fox", "quick, brown!"]
    assert await texts(catalog, '"brown quick"') == ["brown quick"]
    hits = await ask(catalog, '"quick brown fox"')
    assert marked(hits.hits[0]) == [("quick brown fox", "exact")]


async def test_a_phrase_forgives_a_reading_error_in_the_middle(catalog: Catalog) -> None:
    await fill(catalog, 1, "the qu1ck brovn fox")
    hits = await ask(catalog, '"the quick brown fox"')
    assert marked(hits.hits[0]) == [("the qu1ck brovn fox", "fuzzy")]
    assert await texts(catalog, '"the quick brown fox"', mode="exact") == []


async def test_exact_mode_forgives_nothing(catalog: Catalog) -> None:
    await fill(catalog, 1, "hallo", "he11o", "HELLO", "hellos")
    assert await texts(catalog, "hello", mode="exact") == ["HELLO"]


async def test_substring_mode_finds_parts_of_words_and_codes(catalog: Catalog) -> None:
    await fill(catalog, 1, "plate B-MW1234", "order XMW1239", "nothing 9")
    hits = await ask(catalog, "mw12", mode="substring")
    assert [marked(hit) for hit in hits.hits] == [[("MW12", "substring")], [("MW12", "substring")]]
    assert await texts(catalog, "b-mw12", mode="substring") == ["plate B-MW1234"]
    assert await texts(catalog, "thin", mode="substring") == ["nothing 9"]
    assert await texts(catalog, "9", mode="substring") == ["nothing 9"]


@pytest.mark.parametrize(
    ("typed", "line", "mark"),
    [
        ("strasse", "Die STRAẞE hier", "STRAẞE"),
        ("fine", "Is ﬁne", "ﬁne"),
        ("cafe", "Un café", "café"),
        ("café", "Un cafe\u0301", "cafe\u0301"),
        ("istanbul", "In İstanbul", "İstanbul"),
        ("字テ", "漢字テスト", "字テ"),
        ("@alice", "mail @Alice now", "@Alice"),
        ("alice", "mail @Alice now", "Alice"),
        ("19.99", "only $19,99!", "19,99"),
        ("example.com", "see https://www.example.com/a", "example.com"),
        ("https://example.com/a", "see example.com/a", "example.com/a"),
        ("👍", "good 👍🏽 ok", "👍🏽"),
        ("Ｗｉｄｅ", "it is wide", "wide"),
    ],
)
async def test_marks_are_ranges_of_the_text_as_it_was_stored(
    catalog: Catalog, typed: str, line: str, mark: str
) -> None:
    await fill(catalog, 1, line)
    (hit,) = (await ask(catalog, typed)).hits
    assert [text for text, _ in marked(hit)] == [mark]


async def test_a_hit_has_all_that_is_needed_to_show_it(catalog: Catalog) -> None:
    video_id = await fill(catalog, 1, "nothing", "some words")
    (hit,) = (await ask(catalog, "words")).hits
    assert hit.segment_id == "s001"
    assert (hit.video_id, hit.title, hit.t_start, hit.t_end) == (video_id, "Video 1", 1000, 2000)
    assert (hit.box, hit.confidence, hit.language) == (Box(11, 20, 300, 40), 0.9, "en")
    assert (hit.score, hit.duration_ms, hit.s3_thumb_path) == (1.0, None, None)


async def test_filters_narrow_the_hits_with_and_without_words(catalog: Catalog) -> None:
    first = await fill(
        catalog,
        1,
        row(0, "hello @Alice", entities=(("mention", "@Alice"),)),
        row(1, "hello #alice", entities=(("hashtag", "#alice"),), language="de"),
        row(2, "hello you", confidence=0.7, language=None),
    )
    await fill(catalog, 2, row(0, "hello other", language="de"))
    assert await texts(catalog, "hello", video_ids=(first,), language="de") == ["hello #alice"]
    assert await texts(catalog, language="DE") == ["hello other", "hello #alice"]
    assert await texts(catalog, entity_type="mention") == ["hello @Alice"]
    assert await texts(catalog, "hello", entity_value="ALICE") == ["hello @Alice", "hello #alice"]
    assert await texts(catalog, entity_type="hashtag", entity_value="#Alice") == ["hello #alice"]
    assert await texts(catalog, entity_type="url") == []
    assert await texts(catalog, video_ids=(first,), min_confidence=0.9) == ["hello @Alice", "hello #alice"]
    assert await texts(catalog, "hello", min_confidence=0.95) == []


async def test_a_time_range_takes_what_is_on_screen_within_it(catalog: Catalog) -> None:
    await fill(catalog, 1, "word zero", "word one", "word two", "word three")
    assert await texts(catalog, "word", from_ms=1000, to_ms=2000) == ["word one"]
    assert await texts(catalog, "word", from_ms=1500, to_ms=2500) == ["word one", "word two"]
    assert await texts(catalog, from_ms=2999) == ["word two", "word three"]
    assert await texts(catalog, to_ms=1) == ["word zero"]


@pytest.mark.parametrize("limit", [1, 3, 7])
async def test_pages_have_every_hit_once_and_in_order(catalog: Catalog, limit: int) -> None:
    for number in range(3):
        await fill(catalog, number, *[f"{word} {number}" for word in ("hello", "he11o", "hallo", "other", "hello")])
    for filters in ({"text": "hello"}, {"text": "hello", "min_confidence": 0.5}, {"text": "-other", "to_ms": 9000}):
        whole = [hit.segment_id + hit.video_id for hit in (await catalog.search(Query(**filters), SERVICE)).hits]
        pages, cursor = [], None
        while True:
            page = await catalog.search(Query(**filters, limit=limit, cursor=cursor), SERVICE)
            assert len(page.hits) <= limit
            pages += [hit.segment_id + hit.video_id for hit in page.hits]
            cursor = page.cursor
            if cursor is None:
                break
        assert pages == whole
        assert len(whole) == 12


async def test_a_cursor_of_another_query_or_a_damaged_one_is_refused(catalog: Catalog) -> None:
    await fill(catalog, 1, *["word"] * 3)
    cursor = (await ask(catalog, "word", limit=1)).cursor
    assert cursor is not None
    for text, wrong in (("other", cursor), ("word", "zz" + cursor), ("word", "-" + cursor), ("word", "x")):
        with pytest.raises(InvalidInput, match="cursor"):
            await ask(catalog, text, cursor=wrong)


async def test_many_hits_are_counted_up_to_a_limit(catalog: Catalog) -> None:
    for number in range(3):
        await fill(catalog, number, *[f"word {i}" for i in range(400)], "wordy")
    hits = await ask(catalog, "word")
    assert (hits.total, hits.total_is_exact) == (1000, False)
    assert list(hits.per_video.values()) == [400]
    narrowed = await ask(catalog, "word -7", min_confidence=0.5)
    assert (narrowed.total, narrowed.total_is_exact) == (1000, False)
    rare = await ask(catalog, "wordy", mode="exact")
    assert (rare.total, rare.total_is_exact, list(rare.per_video.values())) == (3, True, [1, 1, 1])


async def test_odd_text_finds_nothing_and_harms_nothing(catalog: Catalog) -> None:
    await fill(catalog, 1, "it's 100% \"quoted\" 'text' \\ OR NOT 1=1")
    for text in ("***", '"', "\x00", "\ud800", "(((", "%", "\\", "'", '""""', "-", "@", "🙂"):
        assert await texts(catalog, text) == [], text
    for text in ("100%", 'quoted"', "'text'", "OR NOT", "it's", "1=1", "quoted\x00", "text\ud800"):
        assert len(await texts(catalog, text)) == 1, text
    odd = ("\x00", "\ud800", "'", "no such", "")
    assert await texts(catalog, "text", video_ids=odd) == []
    assert await texts(catalog, "text", language="\x00\ud800") == []
    assert await texts(catalog, "text", entity_type="\x00", entity_value="\ud800'") == []


async def test_suggestions_go_on_with_the_last_word_most_frequent_first(catalog: Catalog) -> None:
    await fill(catalog, 1, "video word", "view", "video @vera", "vice")

    async def words(prefix: str, limit: int = 10) -> list[tuple[str, int]]:
        return [(one.word, one.segments) for one in await catalog.suggest(prefix, limit, SERVICE)]

    assert await words("VI") == [("video", 2), ("vice", 1), ("view", 1)]
    assert await words("some wo") == [("word", 1)]
    assert await words("@") == await words("@ver") == [("@vera", 1)]
    assert await words("vi", 1) == [("video", 2)]
    assert await words("video ") == await words("") == await words("\x00") == await words("%") == []
    with pytest.raises(InvalidInput, match="between 1 and 50"):
        await words("v", 0)


async def test_searches_at_the_same_time_do_not_disturb_one_another(catalog: Catalog) -> None:
    for number in range(4):
        await fill(catalog, number, *[f"word{number} common" for _ in range(5)])
    request = [f"word{i % 4}" for i in range(24)]
    results = await asyncio.gather(*(texts(catalog, text, mode="exact") for text in request))
    assert results == [[f"{text} common"] * 5 for text in request]
