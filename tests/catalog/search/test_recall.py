"""The share of texts found although OCR misread 22 % of the words."""

from __future__ import annotations

import os
import random
from collections import defaultdict
from typing import NamedTuple

from callsheet.catalog import open_catalog
from callsheet.catalog.protocol import Catalog
from callsheet.catalog.records import SERVICE
from callsheet.catalog.search.records import Query
from tests import stores
from tests.catalog.search.corpus import Corpus, put, segments_of

DEEP = "CALLSHEET_DEEP" in os.environ
VIDEOS, SEGMENTS, WORDS = (40, 500, 4000) if DEEP else (6, 250, 800)
QUERIES = 250
MOST = 150  # segments with the word: rarer ones are what people look for


class Score(NamedTuple):
    recall: float
    precision: float


async def _score(catalog: Catalog, mode: str, truth: dict[str, set[str]], queries: list[str]) -> Score:
    result = right = wanted_count = 0
    for word in queries:
        hits: set[str] = set()
        cursor = None
        while True:
            page = await catalog.search(Query(word, mode, limit=200, cursor=cursor), SERVICE)
            hits |= {hit.segment_id for hit in page.hits}
            cursor = page.cursor
            if cursor is None:
                break
        result += len(hits)
        right += len(hits & truth[word])
        wanted_count += len(truth[word])
    return Score(right / wanted_count, right / max(result, 1))


async def test_misread_words_are_found() -> None:
    corpus = Corpus(11, words=WORDS)
    catalog = open_catalog(stores.fresh_url("sqlite"))
    await catalog.migrate()
    await catalog.open()
    truth: dict[str, set[str]] = defaultdict(set)
    try:
        for number in range(VIDEOS):
            lines = corpus.lines(number, SEGMENTS)
            rows = list(segments_of(corpus, lines))
            await put(catalog, number, "ann", None, rows)
            for line, (segment, _) in zip(lines, rows, strict=True):
                for word in line.clean:
                    truth[word].add(segment.segment_id)
        rare = sorted(word for word, at in truth.items() if len(at) <= MOST and len(word) > 3)
        request = random.Random(5).sample(rare, min(QUERIES, len(rare)))
        fuzzy = await _score(catalog, "fuzzy", truth, request)
        exact = await _score(catalog, "exact", truth, request)
    finally:
        await catalog.close()
    assert exact.recall < 0.85, f"{exact}: the noise is gone, and this test would prove nothing"
    assert fuzzy.recall >= 0.97, f"{fuzzy}, exact {exact}"
