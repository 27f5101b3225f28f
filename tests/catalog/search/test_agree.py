"""SQLite, PostgreSQL and the rules themselves give the same hits in the same order, whatever is asked."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from callsheet.catalog import open_catalog
from callsheet.catalog.protocol import Catalog
from callsheet.catalog.records import SERVICE, Reader
from callsheet.catalog.search import find, retrieval
from callsheet.catalog.search.records import Query
from tests import stores
from tests.catalog.search.corpus import Corpus, put, segments_of, video_id_of
from tests.catalog.search.model import Entry, expected

DEEP = "CALLSHEET_DEEP" in os.environ
SEED = int(os.environ.get("CALLSHEET_SEED", "20261116"))
VIDEOS, SEGMENTS, QUERIES = (20, 100, 3000) if DEEP else (8, 40, 200)
READERS = (SERVICE, SERVICE, Reader("owner0"), Reader("owner1", ("team1",)), Reader("nobody"))


async def _filled(corpus: Corpus, catalogs: list[Catalog]) -> list[Entry]:
    entries = []
    for number in range(VIDEOS):
        rows = list(segments_of(corpus, corpus.lines(number, SEGMENTS)))
        owner, team = f"owner{number % 3}", f"team{number % 4}" if number % 2 else None
        entries += [Entry(number, video_id_of(number), owner, team, *row) for row in rows]
        for catalog in catalogs:
            await put(catalog, number, owner, team, rows)
    return entries


class Asker:
    """Makes queries from words of the corpus and from words that nearly match."""

    def __init__(self, corpus: Corpus, entries: list[Entry], chance: random.Random) -> None:
        self._corpus = corpus
        self._entries = entries
        self._chance = chance

    def query(self) -> Query:
        chance = self._chance
        mode = chance.choices(("fuzzy", "exact", "substring"), (6, 1, 2))[0]
        line = chance.choice(self._entries).segment.text.split()
        text = chance.choice((self._word, self._word, self._several, self._phrase, self._excluded))(line, mode)
        if chance.random() < 0.1:
            text = ""
        query = Query(text, mode, limit=chance.choice((1, 5, 20, 200)))
        if not text or chance.random() < 0.4:
            query = query._replace(**self._filter())
        return query

    def _word(self, line: list[str], mode: str) -> str:
        word = self._chance.choice(line)
        if mode == "substring":
            return word[self._chance.randrange(3) :][:4] or word
        change = self._chance.random()
        return self._corpus.damage(word) if change < 0.3 else word[:4] if change < 0.5 else word

    def _several(self, line: list[str], mode: str) -> str:
        return " ".join(self._word(line, mode) for _ in range(self._chance.randint(2, 3)))

    def _phrase(self, line: list[str], _: str) -> str:
        at = self._chance.randrange(len(line))
        return f'"{" ".join(line[at : at + self._chance.randint(1, 3)])}"'

    def _excluded(self, line: list[str], mode: str) -> str:
        return f"{self._word(line, mode)} -{self._chance.choice(line)}"

    def _filter(self) -> dict[str, Any]:
        chance = self._chance
        start = chance.randrange(20_000)
        some: tuple[dict[str, Any], ...] = (
            {"video_ids": (video_id_of(chance.randrange(VIDEOS)), video_id_of(chance.randrange(VIDEOS + 1)))},
            {"from_ms": start, "to_ms": start + chance.randint(1, 9000)},
            {"entity_type": chance.choice(("mention", "hashtag", "number"))},
            {"language": chance.choice(("en", "de")), "min_confidence": 0.8},
            {"min_confidence": chance.choice((0.7, 0.9, 0.99))},
        )
        return chance.choice(some)


def _tighten(monkeypatch: pytest.MonkeyPatch, chance: random.Random) -> int:
    """Use small steps and early ends sometimes, so that few videos cover many cases; how far hits are counted."""
    monkeypatch.setattr(retrieval, "NEWEST_VIDEOS", chance.choice((1, 3, 64)))
    monkeypatch.setattr(retrieval, "GROWTH", chance.choice((1, 4)))
    monkeypatch.setattr(retrieval, "FEW", chance.choice((0, 40, 4000)))
    limit = chance.choice((1, 30, 1000))
    monkeypatch.setattr(find, "TOTAL_LIMIT", limit)
    return limit


async def test_both_databases_and_the_rules_give_the_same_hits_in_the_same_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    corpus, chance = Corpus(SEED, words=150), random.Random(SEED)
    catalogs = [open_catalog(stores.fresh_url(kind)) for kind in ("sqlite", "postgres")]
    for catalog in catalogs:
        await catalog.migrate()
        await catalog.open()
    try:
        entries = await _filled(corpus, catalogs)
        asker = Asker(corpus, entries, chance)
        with_hits = 0
        for _ in range(QUERIES):
            query, reader, limit = asker.query(), chance.choice(READERS), _tighten(monkeypatch, chance)
            fitting = expected(entries, query, reader)
            with_hits += bool(fitting)
            await _compare(catalogs, query, reader, fitting, limit)
        assert with_hits > QUERIES / 2
    finally:
        for catalog in catalogs:
            await catalog.close()


async def _compare(catalogs: list[Catalog], query: Query, reader: Reader, fitting: list[str], limit: int) -> None:
    """Compare the first page, and a second page if one exists."""
    case = f"CALLSHEET_SEED={SEED}: {query} {reader}"
    start = 0
    for _ in range(2):
        answers = [await catalog.search(query, reader) for catalog in catalogs]
        result = answers[0]
        assert result == answers[1], case
        assert [hit.segment_id for hit in result.hits] == fitting[start : start + query.limit], case
        assert (result.total, result.total_is_exact) == (min(len(fitting), limit), len(fitting) <= limit), case
        assert all(hit.marks for hit in result.hits) or not query.text, case
        start += query.limit
        assert (result.cursor is not None) == (len(fitting) > start), case
        if result.cursor is None:
            return
        query = query._replace(cursor=result.cursor)
