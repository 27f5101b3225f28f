"""The index always agrees with the videos: words, their counts, and observers of its changes."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from callsheet.catalog import open_catalog
from callsheet.catalog.protocol import Catalog
from callsheet.catalog.records import SERVICE, Reader
from callsheet.catalog.search.terms import RELOAD_VIDEOS
from callsheet.catalog.search.words import normal, tokens
from tests import stores
from tests.catalog.search.corpus import video_id_of
from tests.catalog.search.kit import ask, fill, texts

WORDS = ("alpha", "beta", "gamma", "delta", "omega", "@zeta", "19.99", "漢字")


async def frequencies(catalog: Catalog, reader: Reader) -> dict[str, int]:
    """All words there are to suggest, asked for letter by letter."""
    starts = {term[0] for word in WORDS for term in (token.term for token in tokens(normal(word)))}
    return {one.word: one.segments for start in sorted(starts) for one in await catalog.suggest(start, 50, reader)}


async def test_frequencies_stay_right_through_inserts_replacements_and_deletions(catalog: Catalog) -> None:
    chance = random.Random(3)
    present: dict[int, tuple[str, list[str]]] = {}
    for _ in range(40):
        number = chance.randrange(6)
        if chance.random() < 0.25:
            await catalog.delete_video(video_id_of(number))
            present.pop(number, None)
            continue
        lines = [" ".join(chance.choices(WORDS, k=chance.randint(1, 4))) for _ in range(chance.randint(0, 4))]
        owner = present[number][0] if number in present else chance.choice(["ann", "bob"])
        await fill(catalog, number, *lines, owner=owner)
        present[number] = (owner, lines)
    for reader in (SERVICE, Reader("ann"), Reader("bob")):
        counts: Counter[str] = Counter()
        for owner, lines in present.values():
            if reader.sees_all or reader.owner_id == owner:
                for line in lines:
                    counts.update({token.term for token in tokens(normal(line))})
        assert await frequencies(catalog, reader) == dict(counts)


async def test_a_replaced_text_is_found_and_the_old_one_is_not(catalog: Catalog) -> None:
    await fill(catalog, 1, "first text", "hello")
    await fill(catalog, 2, "second")
    assert await texts(catalog, "hello") == ["hello"]
    await fill(catalog, 1, "third words")
    assert await texts(catalog, "hello") == await texts(catalog, "first") == []
    assert await texts(catalog, "third") == ["third words"]
    assert await texts(catalog, language="en") == ["second", "third words"]


async def test_the_same_text_again_changes_nothing(catalog: Catalog) -> None:
    await fill(catalog, 1, "hello world", "hello")
    before = await ask(catalog, "hello"), await catalog.suggest("h", 10, SERVICE)
    await fill(catalog, 1, "hello world", "hello")
    assert (await ask(catalog, "hello"), await catalog.suggest("h", 10, SERVICE)) == before


async def test_a_deleted_video_is_found_no_more_and_its_number_is_not_used_again(catalog: Catalog) -> None:
    await fill(catalog, 1, "hello")
    await fill(catalog, 2, "hello two")
    await catalog.delete_video(video_id_of(2))
    await catalog.delete_video(video_id_of(2))
    assert await texts(catalog, "hello") == ["hello"]
    cursor = (await ask(catalog, language="en", limit=1)).cursor
    assert cursor is None
    await fill(catalog, 3, "hello three")
    assert await texts(catalog, "hello") == ["hello three", "hello"]


async def test_a_new_word_is_guessed_at_once_by_another_process(catalog: Catalog, url: str) -> None:
    other = open_catalog(url)
    await other.open()
    try:
        await fill(catalog, 1, "nothing here")
        assert await texts(other, "hello") == []
        await fill(catalog, 2, "hallo")
        assert await texts(other, "hello") == ["hallo"]
        for number in range(3, 3 + RELOAD_VIDEOS + 1):  # more than are taken in one by one
            await fill(catalog, number, f"halio w{number}")
        assert len(await texts(other, "halko", limit=200)) == RELOAD_VIDEOS + 2
    finally:
        await other.close()


async def test_a_video_without_text_is_no_trouble(catalog: Catalog) -> None:
    video_id = await fill(catalog, 1)
    await fill(catalog, 2, "***")
    assert await texts(catalog, "word") == await texts(catalog, video_ids=(video_id,)) == []
    assert await texts(catalog, min_confidence=0.1) == ["***"]


async def test_a_very_long_segment_is_found_by_its_last_word(catalog: Catalog) -> None:
    await fill(catalog, 1, " ".join(f"w{i}" for i in range(5000)), "after")
    for text in ("w0", "w4999", "w4095"):
        assert len((await ask(catalog, text, mode="exact")).hits) == 1
    assert await texts(catalog, '"w4999 after"', mode="exact") == []


@pytest.mark.parametrize("kind", ["libsql", "memory"])
async def test_the_search_runs_on_the_other_embedded_databases(kind: str) -> None:
    catalog = open_catalog(stores.fresh_url(kind))
    await catalog.migrate()
    await catalog.open()
    try:
        await fill(catalog, 1, "hello world", "hallo")
        await fill(catalog, 1, "hello world", "hallo")
        assert await texts(catalog, "hello") == ["hello world", "hallo"]
        assert await texts(catalog, '"hello world"', min_confidence=0.5) == ["hello world"]
        assert [tuple(one) for one in await catalog.suggest("h", 5, SERVICE)] == [("hallo", 1), ("hello", 1)]
    finally:
        await catalog.close()
