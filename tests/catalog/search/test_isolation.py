"""Nobody learns a word of somebody else's video: neither by a hit, a count, a suggestion, nor a spelling expansion."""

from __future__ import annotations

from typing import Any

import pytest

from callsheet.catalog.protocol import Catalog
from callsheet.catalog.records import SERVICE, Reader
from tests.catalog.search.kit import ask, fill, texts

ANN = Reader("ann")
BOB = Reader("bob", ("blue", "red"))
NOBODY = Reader()


@pytest.fixture
async def shared(catalog: Catalog) -> Catalog:
    await fill(catalog, 1, "ann secretone common", owner="ann")
    await fill(catalog, 2, "bob secrettwo common", owner="bob")
    await fill(catalog, 3, "ann secretsix common", owner="ann", team="red")
    await fill(catalog, 4, "cat secretten common", owner="cat", team="green")
    return catalog


async def test_a_reader_finds_his_own_and_his_teams(shared: Catalog) -> None:
    assert await texts(shared, "common", ANN) == ["ann secretsix common", "ann secretone common"]
    assert await texts(shared, "common", BOB) == ["ann secretsix common", "bob secrettwo common"]
    assert len(await texts(shared, "common", SERVICE)) == 4


async def test_who_has_no_name_and_no_team_finds_nothing(shared: Catalog) -> None:
    await fill(shared, 5, "common", owner="dan", team=None)
    for reader in (NOBODY, Reader("", ("",)), Reader("", ("purple",))):
        assert await texts(shared, "common", reader) == []
        assert await shared.suggest("secret", 10, reader) == []


async def test_a_word_of_others_is_not_told_by_what_a_word_was_taken_for(shared: Catalog) -> None:
    for text in ("secrettwe", "secret", '"secrettwo"'):
        hits = await ask(shared, text, ANN)
        expanded_words = {word for words in hits.expanded.values() for word in words}
        assert expanded_words <= {"secretone", "secretsix"}, text


async def test_a_word_of_others_is_not_told_beside_a_word_of_ours(shared: Catalog) -> None:
    hits = await ask(shared, "common secrettwe secretxne", ANN)
    assert not {"secrettwo", "secretten"} & {word for words in hits.expanded.values() for word in words}
    assert (hits.total, hits.hits) == (0, ())


async def test_counts_are_of_what_the_reader_may_see(shared: Catalog) -> None:
    hits = await ask(shared, "common", ANN)
    assert (hits.total, sorted(hits.per_video.values())) == (2, [1, 1])


async def test_naming_a_video_of_others_shows_nothing_of_it(shared: Catalog) -> None:
    theirs = (await ask(shared, "secrettwo")).hits[0].video_id
    assert await texts(shared, "common", ANN, video_ids=(theirs,)) == []
    assert await texts(shared, "", ANN, video_ids=(theirs,)) == []


@pytest.mark.parametrize("filters", [{"language": "en"}, {"min_confidence": 0.1}, {"to_ms": 99}, {"text": "-zebra"}])
async def test_filters_alone_show_only_what_the_reader_may_see(shared: Catalog, filters: dict[str, Any]) -> None:
    assert await texts(shared, reader=BOB, **filters) == ["ann secretsix common", "bob secrettwo common"]


async def test_suggestions_are_of_what_the_reader_may_see_and_counted_so(shared: Catalog) -> None:
    assert [one.word for one in await shared.suggest("secr", 10, ANN)] == ["secretone", "secretsix"]
    assert [one.word for one in await shared.suggest("secr", 10, BOB)] == ["secretsix", "secrettwo"]
    assert [tuple(one) for one in await shared.suggest("comm", 10, BOB)] == [("common", 2)]
    assert [tuple(one) for one in await shared.suggest("comm", 10, SERVICE)] == [("common", 4)]
