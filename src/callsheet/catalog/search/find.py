"""The search itself, once for both databases: rounds of ever more forgiving words, until there are hits enough.

Round 0 takes the words as they are, round 1 also what OCR confuses, and so on. A hit of an earlier round stands before
those of later ones, so a frequent word costs one round: its misread forms are not even read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from callsheet.catalog.records import Box, Reader

from . import cursors, match
from .expand import NAMES, Tiers, expand
from .marks import Wanted, marks
from .query import Asked, Clause, Part, parse
from .records import Found, Hit, Query
from .sight import seen_by
from .steps import Ask, Steps
from .terms import Terms

TOTAL_LIMIT = 1_000
SLICE = 4_096  # hits whose facts are looked at together
MOST_VIDEOS = 5_000  # newest ones, where no word narrows them down
SHOWN = 8  # words that one was taken for
EMPTY = Found((), None, 0, True, {}, {})


class _Reading(NamedTuple):
    """A clause and what each of its words is taken for."""

    clause: Clause
    tiers: tuple[Tiers, ...]

    def terms(self, tier: int) -> list[str]:
        """All terms up to this tier."""
        return [term for tiers in self.tiers for terms in tiers[: tier + 1] for term in terms]


def search(query: Query, reader: Reader, terms: Terms) -> Steps[Found]:
    """Segments that fit, best first. Raises InvalidInput."""
    asked = parse(query)
    after = cursors.read(query) if query.cursor else -1
    if asked is None:
        return EMPTY
    yield from terms.refresh()
    rounds = _Rounds(asked, reader, terms)
    if asked.video_ids is not None:
        rows = yield seen_by(reader, "numbers", list(asked.video_ids))
        rounds.scope = dict(rows)
        if not rows:
            return EMPTY
    found: list[match.Numbers] = []
    is_exact = False
    for tier in range(rounds.count):
        if not rounds.has_tier(tier):
            is_exact = tier + 1 == rounds.count
            continue
        hits = yield from rounds.hits(tier, after)
        found.append((yield from rounds.filtered(match.ranks(hits, tier), sum(map(len, found)), after)))
        is_exact = tier + 1 == rounds.count
        if _enough(found, after, query.limit):
            break
    ranks = np.concatenate(found)
    total = min(len(ranks), TOTAL_LIMIT)
    page = ranks[ranks > after][: query.limit + 1]
    hits_shown = yield from _shown(page[: query.limit], rounds)
    more = cursors.write(query, int(page[query.limit - 1])) if len(page) > query.limit else None
    is_exact = is_exact and len(ranks) <= TOTAL_LIMIT and not rounds.was_cut
    return Found(hits_shown, more, total, is_exact, _per_video(ranks, hits_shown, rounds), rounds.expanded())


def _enough(found: list[match.Numbers], after: int, limit: int) -> bool:
    """True when the page is full and no more are counted."""
    if sum(map(len, found)) <= TOTAL_LIMIT:
        return False
    return sum(int(np.count_nonzero(ranks > after)) for ranks in found) > limit


class _Rounds:
    """The postings read so far, and the hits that they make."""

    def __init__(self, asked: Asked, reader: Reader, terms: Terms) -> None:
        self._asked = asked
        self._reader = reader
        self._terms = terms
        self._rows: dict[str, list[match.Posting]] = {}  # by term, of all videos in scope
        self._facts: dict[int, np.ndarray[tuple[int], np.dtype[np.bool_]]] = {}
        self._seen_terms: set[str] = set()
        self.scope: dict[int, int] | None = None  # the videos that were named, and how many segments they have
        self.was_cut = False
        readings = [_Reading(c, tuple(expand(p, terms) for p in c.parts)) for c in asked.clauses]
        self.wanted = [one for one in readings if not one.clause.is_excluded]
        self._excluded = [one for one in readings if one.clause.is_excluded]
        self._flags = [
            _Reading(Clause((Part(flag, 0, "equal"),), is_excluded=False), (((flag,),),)) for flag in asked.flags
        ]
        self.count = max((len(tiers) for one in self.wanted for tiers in one.tiers), default=1)
        self.numbers: dict[str, int] = {}  # of the videos of the hits on the page
        self.mode = asked.query.mode

    def has_tier(self, tier: int) -> bool:
        """True when some word is taken for something at this tier; the first one always counts."""
        return tier == 0 or any(len(t) > tier and t[tier] for one in self.wanted for t in one.tiers)

    def hits(self, tier: int, after: int) -> Steps[match.Hits]:
        """Segments that meet every clause with words up to this tier."""
        hits: match.Hits | None = None
        wanted = sorted(self.wanted, key=lambda one: self._cost(one.terms(tier)))
        for one in [*wanted, *self._flags]:
            clause = yield from self._met(one, tier, hits)
            hits = match.first_of(clause) if hits is None else match.both(hits, clause)
            if not len(hits.at):
                return hits
        if hits is None:
            hits = yield from self._everything(after)
        for one in self._excluded:
            hits = match.without(hits, (yield from self._met(one, len(NAMES), hits)))
        return hits

    def _everything(self, after: int) -> Steps[match.Hits]:
        """All segments in scope, from where the cursor stands."""
        if self.scope is not None:
            return match.everything(self.scope.items())
        newest = match.NEWEST if after < 0 else match.unranked(after).video
        rows = yield seen_by(self._reader, "newest", newest, MOST_VIDEOS)
        self.was_cut = self.was_cut or len(rows) == MOST_VIDEOS or after >= 0
        return match.everything(rows)

    def _met(self, one: _Reading, tier: int, hits: match.Hits | None) -> Steps[match.Tiered]:
        """The segments that meet one clause; where there are hits already, at least those of their videos."""
        rows = yield from self._load(one.terms(tier), hits)
        met: match.Tiered | None = None
        for part, tiers in zip(one.clause.parts, one.tiers, strict=True):
            tier_of = _tier_of(tiers, tier)
            postings = [row for term in tier_of for row in rows.get(term, ())]
            places = match.keys(postings, tier_of, part.offset) if postings else match.no_places()
            met = places if met is None else match.side_by_side(met, places)
        return match.segments(met or match.no_places())

    def _cost(self, terms: Sequence[str]) -> int:
        return sum(self._terms.frequency.get(term, 0) for term in terms)

    def _load(self, terms: list[str], hits: match.Hits | None) -> Steps[dict[str, list[match.Posting]]]:
        """The postings of some terms: all in scope, or only those of the hits' videos where that is less."""
        videos = list(self.scope) if self.scope is not None else None
        missing = [term for term in terms if term not in self._rows]
        if not missing:
            return self._rows
        if hits is not None:
            narrow = match.videos_of(hits.at)
            if len(narrow) * len(missing) < max(self._cost(missing), 1 if self.scope is None else len(self.scope)):
                rows = yield Ask("postings_of_videos", (missing, narrow))
                return self._rows | self._by_term(missing, rows)
        if videos is None:
            rows = yield seen_by(self._reader, "postings", missing)
        else:
            rows = yield Ask("postings_of_videos", (missing, videos))
        self._rows.update(self._by_term(missing, rows))
        return self._rows

    def _by_term(self, terms: list[str], rows: list[match.Posting]) -> dict[str, list[match.Posting]]:
        grouped: dict[str, list[match.Posting]] = {term: [] for term in terms}
        for row in rows:
            grouped[row[0]].append(row)
        self._seen_terms.update(term for term, some in grouped.items() if some)
        return grouped

    def filtered(self, ranks: match.Numbers, before: int, after: int) -> Steps[match.Numbers]:
        """The ranks whose times and confidence are as asked; only as many as are needed."""
        if not self._asked.filters_by_facts:
            return ranks
        kept: list[match.Numbers] = [ranks[:0]]
        beyond = 0
        for i in range(0, len(ranks), SLICE):
            part = ranks[i : i + SLICE]
            at = match.segment_of(part)
            yield from self._read_facts(at)
            kept.append(part[match.passing(at, self._facts)])
            beyond += int(np.count_nonzero(kept[-1] > after))
            if before + sum(map(len, kept)) > TOTAL_LIMIT and beyond > self._asked.query.limit:
                break
        return np.concatenate(kept)

    def _read_facts(self, at: match.Numbers) -> Steps[None]:
        missing = [video for video in match.videos_of(np.sort(at)) if video not in self._facts]
        if not missing:
            return
        query = self._asked.query
        for number, packed in (yield Ask("facts", (missing,))):
            confidence, starts, ends = match.facts(packed)
            passes = confidence >= query.min_confidence
            if query.to_ms is not None:
                passes &= starts < query.to_ms
            if query.from_ms is not None:
                passes &= (ends > query.from_ms) | (starts >= query.from_ms)
            self._facts[number] = passes

    def read_hits(self, ranks: list[match.Ranked]) -> Steps[dict[tuple[int, int], tuple[Any, ...]]]:
        """The rows behind some ranks, by video and segment. They are asked for as this reader, once more."""
        packed = dict((yield Ask("row_ids", (sorted({rank.video for rank in ranks}),))))
        ids = {(r.video, r.ordinal): match.row_id(packed[r.video], r.ordinal) for r in ranks}
        rows = {row[0]: row for row in (yield seen_by(self._reader, "hits", sorted(ids.values())))}
        return {place: tuple(rows[row_id][1:]) for place, row_id in ids.items() if row_id in rows}

    def expanded(self) -> dict[str, tuple[str, ...]]:
        """What each word was taken for, as far as this reader's videos have it."""
        shown = {}
        for one in self.wanted:
            for part, tiers in zip(one.clause.parts, one.tiers, strict=True):
                terms = [term for some in tiers for term in some if term in self._seen_terms]
                shown[part.term] = tuple(terms[:SHOWN])
        return shown


def _tier_of(tiers: Tiers, most: int) -> dict[str, int]:
    return {term: tier for tier, terms in enumerate(tiers[: most + 1]) for term in terms}


def _shown(page: match.Numbers, rounds: _Rounds) -> Steps[tuple[Hit, ...]]:
    """The hits of a page with their text and marks."""
    ranks = [match.unranked(int(rank)) for rank in page]
    if not ranks:
        return ()
    rows = yield from rounds.read_hits(ranks)
    wanted = [Wanted(one.clause, tuple(_tier_of(t, len(t)) for t in one.tiers)) for one in rounds.wanted]
    names = NAMES[rounds.mode]
    hits = []
    for rank in ranks:
        row = rows.get((rank.video, rank.ordinal))
        if row is not None:
            segment_id, video_id, title, t_start, t_end, text, box, confidence, language, duration_ms, thumb = row
            rounds.numbers[video_id] = rank.video
            score = _score(rank, len(wanted))
            found = marks(text, wanted, rank.worst, names)
            area = Box(**json.loads(box))
            hits.append(
                Hit(
                    segment_id,
                    video_id,
                    title,
                    t_start,
                    t_end,
                    text,
                    found,
                    area,
                    confidence,
                    language,
                    score,
                    duration_ms,
                    thumb,
                )
            )
    return tuple(hits)


def _score(rank: match.Ranked, words: int) -> float:
    """1 for words as they were typed, less with each tier; in the order of the hits."""
    return round(1 - rank.worst / 4 - rank.total / (4 * (3 * words + 1)), 4)


def _per_video(ranks: match.Numbers, hits: tuple[Hit, ...], rounds: _Rounds) -> dict[str, int]:
    """How many hits the videos of this page have, as far as they were counted."""
    videos = match.segment_of(ranks[:TOTAL_LIMIT]) >> match.SEGMENT_BITS
    return {hit.video_id: int(np.count_nonzero(videos == match.NEWEST - rounds.numbers[hit.video_id])) for hit in hits}
