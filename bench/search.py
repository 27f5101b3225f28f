"""Full-text search over made-up videos: 20,000 and 500,000 segments, kind by kind of query, beside nothing else.

`python -m bench.search sqlite` (or postgres) fills, measures and prints; `--url` measures a database that is filled
already.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from bench import places
from bench.measure import keep, percentile, say
from callsheet.catalog import open_catalog
from callsheet.catalog.records import SERVICE, Reader
from callsheet.catalog.search.records import Query
from tests.catalog.search.corpus import Corpus, put, segments_of, video_id_of

SEED = 1
PER_VIDEO = 500


class Plan(NamedTuple):
    """The number of videos of 500 segments, of distinct words, and of queries per kind."""

    videos: int
    words: int
    times: int


SMALL = Plan(videos=40, words=30_000, times=100)
FULL = Plan(videos=1_000, words=30_000, times=100)
QUICK = Plan(videos=4, words=3_000, times=20)
FREQUENT = 8  # words that are in a tenth of all segments and more
RARE = 3_000  # from here on words are in few segments


async def measure(kind: str, *, quick: bool) -> None:
    """Fill, ask, keep."""
    figures_of = {}
    for name, plan in {"quick": QUICK}.items() if quick else {"small": SMALL, "full": FULL}.items():
        async with places.fresh(kind) as url:
            filled_s = await fill(url, plan)
            figures_of[name] = {"plan": plan._asdict(), "filled_s": filled_s, **await ask(url, plan)}
    keep(f"search-{kind}", {"found": figures_of, "servers": await places.server_versions()}, quick=quick)


async def fill(url: str, plan: Plan) -> float:
    """Store the videos as the pipeline does; return the seconds."""
    corpus = Corpus(SEED, words=plan.words)
    total_s = 0.0
    catalog = open_catalog(url)
    await catalog.migrate()
    await catalog.open()
    try:
        for number in range(plan.videos):
            rows = list(segments_of(corpus, corpus.lines(number, PER_VIDEO)))
            began = time.perf_counter()
            await put(catalog, number, f"owner{number % 10}", f"team{number % 7}" if number % 3 else None, rows)
            total_s += time.perf_counter() - began
            if number % 100 == 99:
                say(f"{number + 1} videos in {total_s:.0f} s")
    finally:
        await catalog.close()
    return total_s


class Asker:
    """Builds one query of each kind from words of the corpus."""

    def __init__(self, plan: Plan) -> None:
        self._corpus = Corpus(SEED, words=plan.words)
        self._plan = plan
        self._chance = random.Random(SEED)
        self._lines = [self._corpus.line(0).clean for _ in range(2_000)]

    def rare(self) -> str:
        words = self._corpus.words
        return self._chance.choice(words[min(RARE, len(words) // 2) :])

    def _frequent(self) -> str:
        return self._chance.choice(self._corpus.words[:FREQUENT])

    def _pair(self) -> tuple[str, str]:
        line = self._chance.choice(self._lines)
        at = self._chance.randrange(len(line) - 1)
        return line[at], line[at + 1]

    def kinds(self) -> dict[str, Callable[[], tuple[Query, Reader]]]:
        """Return a function per kind that runs one query."""

        def by(make: Callable[[], Query], reader: Reader = SERVICE) -> Callable[[], tuple[Query, Reader]]:
            return lambda: (make(), reader)

        chance, rare, frequent = self._chance, self.rare, self._frequent
        return {
            "one rare word": by(lambda: Query(rare())),
            "two words of a line": by(lambda: Query(" ".join(self._pair()))),
            "one frequent word": by(lambda: Query(frequent())),
            "two frequent words": by(lambda: Query(f"{frequent()} {frequent()}")),
            "a frequent and a rare word": by(lambda: Query(f"{frequent()} {rare()}")),
            "typing error": by(lambda: Query(self._corpus.damage(rare()))),
            "phrase": by(lambda: Query(f'"{" ".join(self._pair())}"')),
            "phrase of frequent words": by(lambda: Query(f'"{frequent()} {frequent()}"')),
            "beginning of a word": by(lambda: Query(rare()[:4])),
            "part of a word": by(lambda: Query(rare()[1:5], "substring")),
            "in one video": by(
                lambda: Query(frequent(), video_ids=(video_id_of(chance.randrange(self._plan.videos)),))
            ),
            "with an entity": by(lambda: Query(frequent(), entity_type="mention")),
            "by time and confidence": by(lambda: Query(frequent(), from_ms=60_000, to_ms=90_000, min_confidence=0.9)),
            "as one of ten owners": by(lambda: Query(frequent()), Reader("owner3")),
            "only an entity": by(lambda: Query(entity_type="hashtag", entity_value=rare())),
            "excluding a word": by(lambda: Query(f"{frequent()} -{frequent()}")),
        }


async def ask(url: str, plan: Plan) -> dict[str, Any]:
    """Milliseconds for each kind of query: the median, the 95th percentile, the longest; and all kinds together."""
    catalog = open_catalog(url)
    await catalog.open()
    asker = Asker(plan)
    kinds: dict[str, dict[str, float]] = {}
    everything: list[Spent] = []
    try:
        began = time.perf_counter()
        await catalog.search(Query("warm"), SERVICE)
        first_ms = (time.perf_counter() - began) * 1000
        for name, make in asker.kinds().items():
            times = [await _time(catalog.search(*make())) for _ in range(plan.times)]
            everything += times
            kinds[name] = _figures(name, times)
        times = [await _time(catalog.suggest(asker.rare()[:2], 10, SERVICE)) for _ in range(plan.times)]
        kinds["suggestions"] = _figures("suggestions", times)
    finally:
        await catalog.close()
    say(f"first search (reads the list of words) {first_ms:.0f} ms")
    return {"first_ms": first_ms, "kinds": kinds, "all": _figures("all", everything)}


def _figures(name: str, times: list[Spent]) -> dict[str, float]:
    walls, cpus = [one.wall for one in times], [one.cpu for one in times]
    figures = {"p50": percentile(walls, 0.5), "p95": percentile(walls, 0.95), "max": max(walls)}
    figures |= {"cpu p50": percentile(cpus, 0.5), "cpu p95": percentile(cpus, 0.95)}
    say(f"{name:28} " + "  ".join(f"{key} {value:8.1f} ms" for key, value in figures.items()))
    return figures


class Spent(NamedTuple):
    """Milliseconds of one query: wall clock, and CPU of this process without PostgreSQL's own."""

    wall: float
    cpu: float


async def _time(query: Awaitable[Any]) -> Spent:
    began, used = time.perf_counter(), time.process_time()
    await query
    return Spent((time.perf_counter() - began) * 1000, (time.process_time() - used) * 1000)


def sections(records: dict[str, dict[str, Any]], table: Callable[[Any, Any], str]) -> list[str]:
    """Return the paragraphs and tables for RESULTS.md."""
    text = (
        "Segments of made-up videos, 500 each, with a share of their words misread; 100 queries of each kind, one after "
        "the other, in milliseconds: the median and the 95th percentile. The first search of a process reads the words."
    )
    parts = [text]
    sizes = {name for record in records.values() for name in record["measured"]["found"]}
    for size in sorted(sizes, reverse=True):
        figures_of = {
            kind: r["measured"]["found"][size] for kind, r in records.items() if size in r["measured"]["found"]
        }
        plan = next(iter(figures_of.values()))["plan"]
        names = next(iter(figures_of.values()))["kinds"]
        rows = [
            (
                name,
                *(f"{one['kinds'][name]['p50']:.1f} / {one['kinds'][name]['p95']:.1f}" for one in figures_of.values()),
            )
            for name in names
        ]
        rows.append(("**all**", *(f"{one['all']['p50']:.1f} / {one['all']['p95']:.1f}" for one in figures_of.values())))
        rows.append(("first search", *(f"{one['first_ms']:.0f}" for one in figures_of.values())))
        rows.append(("filled in", *(f"{one['filled_s']:.0f} s" for one in figures_of.values())))
        parts += [f"{plan['videos'] * PER_VIDEO:,} segments:", table(("query", *figures_of), rows)]
    return parts


def main() -> None:
    """One kind of database, from the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.search", description=__doc__)
    parser.add_argument("kind", choices=("sqlite", "postgres"))
    parser.add_argument("--url", help="a catalogue that was filled before")
    parser.add_argument("--plan", choices=("small", "full", "quick"), default="full")
    options = parser.parse_args()
    plan = {"small": SMALL, "full": FULL, "quick": QUICK}[options.plan]
    asyncio.run(_one(options.kind, options.url, plan))


async def _one(kind: str, url: str | None, plan: Plan) -> None:
    if url is not None:
        await ask(url, plan)
        return
    try:
        async with places.fresh(kind) as fresh_url:
            say(f"filled in {await fill(fresh_url, plan):.0f} s")
            await ask(fresh_url, plan)
    finally:
        places.stop()


if __name__ == "__main__":
    main()
