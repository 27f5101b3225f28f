"""Retrieval of matching segments, round by round and from newer videos to older ones.

Round 0 matches exact words, round 1 also OCR variants, and so on. Hits of earlier rounds rank before those of later
rounds, and within a round newer videos rank first, so the search can stop as soon as a page is full. A frequent word
reads postings of the newest videos only, without its misread forms and without older videos.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from callsheet.catalog.records import Reader

from . import match
from .db_requests import Ask, Steps, visible_to
from .postings import PLACE_BITS
from .query import Asked, Clause, Part
from .terms import NAMES, Terms, Tiers, expand

NEWEST_VIDEOS = 64  # in the first span; each next span has four times as many …
GROWTH = 4
MOST_VIDEOS = 4_096  # … up to this many
FEW = 4_000  # rows of postings: up to this many are read at once, in any round
MOST_EXPANSIONS = 8  # index words reported per query word


class Span(NamedTuple):
    """A range of video numbers, both ends included."""

    low: int
    high: int


class Reading(NamedTuple):
    """A clause of the query with the index words, by tier, that match each of its words."""

    clause: Clause
    tiers: tuple[Tiers, ...]


def spans(newest: int) -> Iterator[Span]:
    """Yield ranges that cover all video numbers, newest first, each larger than the last up to 4,096 videos."""
    size = NEWEST_VIDEOS
    while newest > 0:
        yield Span(max(newest - size + 1, 1), newest)
        newest -= size
        size = min(size * GROWTH, MOST_VIDEOS)


def tier_of(tiers: Tiers, most: int) -> dict[str, int]:
    """Return each index term's tier, for tiers up to `most`."""
    return {term: tier for tier, terms in enumerate(tiers[: most + 1]) for term in terms}


Postings = dict[str, list[match.Posting]]


class Rounds:
    """The state of one search: its query, the postings read so far, and the ranks computed from them."""

    def __init__(self, parsed_query: Asked, reader: Reader, terms: Terms) -> None:
        self._reader = reader
        self._terms = terms
        self._read: dict[Span, Postings] = {}
        self._met_terms: set[str] = set()
        self._facts: dict[int, bytes] = {}  # by video
        self._query = parsed_query.query
        self._filters_by_facts = parsed_query.filters_by_facts
        self._scope: dict[int, int] | None = None  # segment counts of the videos that the query names
        words = {part: expand(part, terms) for clause in parsed_query.clauses for part in clause.parts}
        readings = [Reading(c, tuple(words[part].tiers for part in c.parts)) for c in parsed_query.clauses]
        self.is_cut = any(word.is_cut for word in words.values())
        self.required = [one for one in readings if not one.clause.is_excluded]
        self._exclusions = [one for one in readings if one.clause.is_excluded]
        flags = (Clause((Part(flag, 0, "equal"),), is_excluded=False) for flag in parsed_query.flags)
        self._flags = [Reading(clause, (((clause.parts[0].term,),),)) for clause in flags]
        self._count = max((len(tiers) for one in self.required for tiers in one.tiers), default=1)

    def ranks(self, video_ids: Sequence[str] | None) -> Iterator[Steps[match.Numbers]]:
        """Yield the steps of the search in rank order; the caller runs each when it needs more hits."""
        if video_ids is not None:
            yield self._load_scope(video_ids)
        every = [Span(1, self._terms.newest)]
        if video_ids is None and not self._is_rare():
            every = list(spans(self._terms.newest))
        for tier in range(self._count):
            if tier == 0 or any(len(t) > tier and t[tier] for one in self.required for t in one.tiers):
                for span in every:
                    yield self._ranks(tier, span)

    def _load_scope(self, video_ids: Sequence[str]) -> Steps[match.Numbers]:
        self._scope = dict((yield visible_to(self._reader, "numbers", list(video_ids))))
        return match.nothing().at

    def _ranks(self, tier: int, span: Span) -> Steps[match.Numbers]:
        hits = yield from self._hits(tier, span)
        ranks = match.ranks(hits, tier)
        return (yield from self._filter(ranks)) if self._filters_by_facts else ranks

    def _hits(self, tier: int, span: Span) -> Steps[match.Hits]:
        """Return the segments in a span that match every clause with index words up to this tier."""
        hits: match.Hits | None = None
        by_cost = sorted(self.required, key=lambda one: self._clause_cost(one, tier))
        for one in [*by_cost, *self._flags]:
            clause = yield from self._matches(one, tier, span, hits)
            hits = match.Hits(*clause) if hits is None else match.both(hits, clause)
            if not len(hits.at):
                return hits
        if hits is None:
            hits = yield from self._everything(span)
        for one in self._exclusions:
            hits = match.without(hits, (yield from self._matches(one, len(NAMES), span, hits)))
        return hits

    def _everything(self, span: Span) -> Steps[match.Hits]:
        if self._scope is not None:
            return match.everything(self._scope.items())
        return match.everything((yield visible_to(self._reader, "videos", *span)))

    def _matches(self, one: Reading, tier: int, span: Span, hits: match.Hits | None) -> Steps[match.Hits]:
        """Return the segments that match one clause; if `hits` is given, the videos of those hits suffice."""
        videos = match.videos_of(hits.at) if hits is not None else None
        parts = list(zip(one.clause.parts, one.tiers, strict=True))
        parts.sort(key=lambda pair: self._cost(pair[1], tier))
        hits_so_far: match.Hits | None = None
        for part, tiers in parts:
            tier_by_term = tier_of(tiers, tier)
            cheap = videos is None and self._cost(tiers, len(tiers)) <= FEW
            rows = yield from self._load(list(tier_of(tiers, len(tiers)) if cheap else tier_by_term), span, videos)
            postings = [row for term in tier_by_term for row in rows[term]]
            if len(parts) == 1:
                return match.segments(postings, tier_by_term)
            places = match.places(postings, tier_by_term, part.offset)
            hits_so_far = places if hits_so_far is None else match.both(hits_so_far, places)
            videos = match.videos_of(hits_so_far.at >> PLACE_BITS)
        return match.segments_of(hits_so_far or match.nothing())

    def _cost(self, tiers: Tiers, tier: int) -> int:
        """Return an upper bound of the rows of postings up to a tier."""
        return sum(self._terms.rows(term) for terms in tiers[: tier + 1] for term in terms)

    def _clause_cost(self, one: Reading, tier: int) -> int:
        """Return the cost of the clause's rarest word, which is read first."""
        return min(self._cost(tiers, tier) for tiers in one.tiers)

    def _is_rare(self) -> bool:
        """Return True if a clause has at most 4,000 postings, so that one span can cover all videos."""
        return any(self._clause_cost(one, len(NAMES)) <= FEW for one in self.required)

    def _load(self, terms: list[str], span: Span, videos: list[int] | None) -> Steps[Postings]:
        """Return the postings of terms in a span; for frequent terms, only those of `videos` if they are fewer."""
        read = self._read.setdefault(span, {})
        missing = [term for term in terms if term not in read]
        narrow: Postings = {}
        if self._scope is not None:
            videos, everywhere = list(self._scope), []
        else:
            few = len(videos) if videos is not None else self._terms.newest
            everywhere = [term for term in missing if self._terms.rows(term) <= few and not term.startswith("=")]
            everywhere = missing if videos is None else everywhere
        some = set(missing) - set(everywhere)
        if everywhere:
            rows = yield visible_to(self._reader, "postings", everywhere, *span)
            read.update(self._by_term(everywhere, rows))
        if some:
            rows = yield Ask("postings_of_videos", (sorted(some), videos))
            narrow = self._by_term(sorted(some), rows)
        return read | narrow if narrow else read

    def _by_term(self, terms: list[str], rows: list[match.Posting]) -> Postings:
        by_term: Postings = {term: [] for term in terms}
        for row in rows:
            by_term[row[0]].append(row)
        self._met_terms.update(term for term, some in by_term.items() if some)
        return by_term

    def _filter(self, ranks: match.Numbers) -> Steps[match.Numbers]:
        """Return the ranks whose segments pass the query's time and confidence filters."""
        if not len(ranks):
            return ranks
        at = match.segment_of(ranks)
        missing = [video for video in match.videos_of(at) if video not in self._facts]
        if missing:
            self._facts.update((yield Ask("facts", (missing,))))
        facts, query = match.facts(at, self._facts), self._query
        passes = facts.confidence >= query.min_confidence
        if query.to_ms is not None:
            passes &= facts.starts < query.to_ms
        if query.from_ms is not None:
            passes &= (facts.ends > query.from_ms) | (facts.starts >= query.from_ms)
        return ranks[passes]

    def expansions(self) -> dict[str, tuple[str, ...]]:
        """Return up to 8 index words for each query word, only from postings that this search read for its reader."""
        by_word = {}
        for one in self.required:
            for part, tiers in zip(one.clause.parts, one.tiers, strict=True):
                terms = [term for some in tiers for term in some if term in self._met_terms]
                by_word[part.term] = tuple(terms[:MOST_EXPANSIONS])
        return by_word
