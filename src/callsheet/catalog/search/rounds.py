"""Which segments meet a query, round by round and from newer videos to older ones.

Round 0 takes the words as they are, round 1 also what OCR confuses, and so on. A hit of an earlier round stands before
those of later ones, and of one round those of newer videos come first; so the search may stop as soon as it has enough.
A frequent word costs a look at the newest videos: its misread forms, and the older videos, are not even read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from callsheet.catalog.records import Reader

from . import match
from .expand import NAMES, Tiers, expand
from .postings import PLACE_BITS
from .query import Asked, Clause, Part
from .sight import seen_by
from .steps import Ask, Steps
from .terms import Terms

NEWEST_VIDEOS = 64  # are looked at first, then four times as many …
GROWTH = 4
MOST_VIDEOS = 4_096  # … up to so many together
FEW = 4_000  # rows: so few are read at once, whatever the round
SHOWN = 8  # words that one was taken for


class Span(NamedTuple):
    """Videos from one number to another."""

    low: int
    high: int


class Reading(NamedTuple):
    """A clause and what each of its words is taken for."""

    clause: Clause
    tiers: tuple[Tiers, ...]


def spans(newest: int) -> Iterator[Span]:
    """All numbers of videos, the newest first, in ever greater steps."""
    size = NEWEST_VIDEOS
    while newest > 0:
        yield Span(max(newest - size + 1, 1), newest)
        newest -= size
        size = min(size * GROWTH, MOST_VIDEOS)


def tier_of(tiers: Tiers, most: int) -> dict[str, int]:
    """Terms and their tiers, up to one."""
    return {term: tier for tier, terms in enumerate(tiers[: most + 1]) for term in terms}


Postings = dict[str, list[match.Posting]]


class Rounds:
    """The postings read so far, and the hits that they make."""

    def __init__(self, asked: Asked, reader: Reader, terms: Terms) -> None:
        self._reader = reader
        self._terms = terms
        self._read: dict[Span, Postings] = {}
        self._met_terms: set[str] = set()
        self._facts: dict[int, bytes] = {}  # by video
        self._query = asked.query
        self._filters_by_facts = asked.filters_by_facts
        self._scope: dict[int, int] | None = None  # the videos that were named, and how many segments they have
        words = {part: expand(part, terms) for clause in asked.clauses for part in clause.parts}
        readings = [Reading(c, tuple(words[part].tiers for part in c.parts)) for c in asked.clauses]
        self.is_cut = any(word.is_cut for word in words.values())
        self.wanted = [one for one in readings if not one.clause.is_excluded]
        self._excluded = [one for one in readings if one.clause.is_excluded]
        flags = (Clause((Part(flag, 0, "equal"),), is_excluded=False) for flag in asked.flags)
        self._flags = [Reading(clause, (((clause.parts[0].term,),),)) for clause in flags]
        self._count = max((len(tiers) for one in self.wanted for tiers in one.tiers), default=1)

    def ranks(self, video_ids: Sequence[str] | None) -> Iterator[Steps[match.Numbers]]:
        """Parts of the answer in order, each to be run when it is needed."""
        if video_ids is not None:
            yield self._named(video_ids)
        every = [Span(1, self._terms.newest)]
        if video_ids is None and not self._is_rare():
            every = list(spans(self._terms.newest))
        for tier in range(self._count):
            if tier == 0 or any(len(t) > tier and t[tier] for one in self.wanted for t in one.tiers):
                for span in every:
                    yield self._ranks(tier, span)

    def _named(self, video_ids: Sequence[str]) -> Steps[match.Numbers]:
        self._scope = dict((yield seen_by(self._reader, "numbers", list(video_ids))))
        return match.nothing().at

    def _ranks(self, tier: int, span: Span) -> Steps[match.Numbers]:
        hits = yield from self._hits(tier, span)
        ranks = match.ranks(hits, tier)
        return (yield from self._filtered(ranks)) if self._filters_by_facts else ranks

    def _hits(self, tier: int, span: Span) -> Steps[match.Hits]:
        """Segments that meet every clause with words up to this tier."""
        hits: match.Hits | None = None
        wanted = sorted(self.wanted, key=lambda one: self._clause_cost(one, tier))
        for one in [*wanted, *self._flags]:
            clause = yield from self._met(one, tier, span, hits)
            hits = match.Hits(*clause) if hits is None else match.both(hits, clause)
            if not len(hits.at):
                return hits
        if hits is None:
            hits = yield from self._everything(span)
        for one in self._excluded:
            hits = match.without(hits, (yield from self._met(one, len(NAMES), span, hits)))
        return hits

    def _everything(self, span: Span) -> Steps[match.Hits]:
        if self._scope is not None:
            return match.everything(self._scope.items())
        return match.everything((yield seen_by(self._reader, "videos", *span)))

    def _met(self, one: Reading, tier: int, span: Span, hits: match.Hits | None) -> Steps[match.Hits]:
        """The segments that meet one clause; where there are hits already, at least those of their videos."""
        videos = match.videos_of(hits.at) if hits is not None else None
        parts = list(zip(one.clause.parts, one.tiers, strict=True))
        parts.sort(key=lambda pair: self._cost(pair[1], tier))
        met: match.Hits | None = None
        for part, tiers in parts:
            tier_by_term = tier_of(tiers, tier)
            cheap = videos is None and self._cost(tiers, len(tiers)) <= FEW
            rows = yield from self._load(list(tier_of(tiers, len(tiers)) if cheap else tier_by_term), span, videos)
            postings = [row for term in tier_by_term for row in rows[term]]
            if len(parts) == 1:
                return match.segments(postings, tier_by_term)
            places = match.places(postings, tier_by_term, part.offset)
            met = places if met is None else match.both(met, places)
            videos = match.videos_of(met.at >> PLACE_BITS)
        return match.segments_of(met or match.nothing())

    def _cost(self, tiers: Tiers, tier: int) -> int:
        """How many rows of postings there may be up to a tier."""
        return sum(self._terms.rows(term) for terms in tiers[: tier + 1] for term in terms)

    def _clause_cost(self, one: Reading, tier: int) -> int:
        """The same of the rarest word of a clause: it is read first."""
        return min(self._cost(tiers, tier) for tiers in one.tiers)

    def _is_rare(self) -> bool:
        """True when some clause has so few rows that all videos are looked at together."""
        return any(self._clause_cost(one, len(NAMES)) <= FEW for one in self.wanted)

    def _load(self, terms: list[str], span: Span, videos: list[int] | None) -> Steps[Postings]:
        """The postings of some terms in a span; of frequent terms only those of these videos, where that is less."""
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
            rows = yield seen_by(self._reader, "postings", everywhere, *span)
            read.update(self._by_term(everywhere, rows))
        if some:
            rows = yield Ask("postings_of_videos", (sorted(some), videos))
            narrow = self._by_term(sorted(some), rows)
        return read | narrow if narrow else read

    def _by_term(self, terms: list[str], rows: list[match.Posting]) -> Postings:
        grouped: Postings = {term: [] for term in terms}
        for row in rows:
            grouped[row[0]].append(row)
        self._met_terms.update(term for term, some in grouped.items() if some)
        return grouped

    def _filtered(self, ranks: match.Numbers) -> Steps[match.Numbers]:
        """The ranks whose times and confidence are as asked."""
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

    def expanded(self) -> dict[str, tuple[str, ...]]:
        """What each word was taken for, as far as this reader's videos have it and it was read."""
        shown = {}
        for one in self.wanted:
            for part, tiers in zip(one.clause.parts, one.tiers, strict=True):
                terms = [term for some in tiers for term in some if term in self._met_terms]
                shown[part.term] = tuple(terms[:SHOWN])
        return shown
