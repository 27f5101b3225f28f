"""The search rules, implemented the slow way: every segment is looked at. The index must return equal results."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

from rapidfuzz.distance import OSA

from callsheet.catalog.records import NewEntity, NewSegment, Reader
from callsheet.catalog.search.query import Clause, Part, parse
from callsheet.catalog.search.records import Query
from callsheet.catalog.search.words import Token, look_alike, normal, tokens

NEVER = 9


class Entry(NamedTuple):
    """A segment with every searchable field; `video` grows with the order of entry."""

    video: int
    video_id: str
    owner: str
    team: str | None
    segment: NewSegment
    entities: list[NewEntity]


def expected(entries: Sequence[Entry], query: Query, reader: Reader) -> list[str]:
    """The segments that fit, in order."""
    parsed_query = parse(query)
    if parsed_query is None:
        return []
    ranking = []
    for entry in entries:
        if _may(entry, reader) and _passes(entry, query):
            tiers = _tiers(entry.segment.text, parsed_query.clauses)
            if tiers is not None:
                place = (-entry.video, entry.segment.t_start, entry.segment.segment_id)
                ranking.append((max(tiers, default=0), *place))
    return [str(rank[-1]) for rank in sorted(ranking)]


def _may(entry: Entry, reader: Reader) -> bool:
    return reader.sees_all or entry.owner == reader.owner_id or entry.team in reader.team_ids


def _passes(entry: Entry, query: Query) -> bool:
    new = entry.segment
    return (
        (not query.video_ids or entry.video_id in query.video_ids)
        and (query.from_ms is None or new.t_end > query.from_ms)
        and (query.to_ms is None or new.t_start < query.to_ms)
        and (query.language is None or new.language == query.language)
        and new.confidence >= query.min_confidence
        and (query.entity_type is None or any(e.entity_type == query.entity_type for e in entry.entities))
    )


@functools.cache
def _tokens(text: str) -> list[Token]:
    return list(tokens(normal(text)))


_alike = functools.cache(look_alike)


def _tiers(text: str, clauses: Sequence[Clause]) -> list[int] | None:
    result = _tokens(text)
    tiers = []
    for clause in clauses:
        tier = min((_at(result, clause, place) for place in {token.place for token in result}), default=NEVER)
        if clause.is_excluded:
            if tier < NEVER:
                return None
        elif tier == NEVER:
            return None
        else:
            tiers.append(tier)
    return tiers


def _at(found: list[Token], clause: Clause, place: int) -> int:
    worst = 0
    for part in clause.parts:
        here = [_tier(part, token.term) for token in found if token.place == place + part.offset]
        worst = max(worst, min(here, default=NEVER))
    return worst


def _tier(part: Part, term: str) -> int:
    if term == part.term:
        return 0
    match part.fit:
        case "equal":
            return NEVER
        case "contains":
            return 1 if part.term in term else NEVER
        case "starts":
            return 1 if term.startswith(part.term) else NEVER
        case "ends":
            return 1 if term.endswith(part.term) else NEVER
    if _alike(term) == _alike(part.term):
        return 1
    letters = any(letter.isalpha() for letter in part.term)
    if part.fit != "quoted" and len(part.term) > 3 and letters and OSA.distance(term, part.term) <= 1:
        return 2
    long = len(part.term) >= (2 if part.term.isdigit() else 3)
    return 3 if part.fit == "word" and long and term.startswith(part.term) else NEVER
