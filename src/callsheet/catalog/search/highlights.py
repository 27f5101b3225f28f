"""Highlights: the characters of a hit's stored text that matched the query."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .query import Clause
from .records import Mark
from .words import Token, map_positions, tokens


class Wanted(NamedTuple):
    """A clause of the query with, for each part, the matching index terms and their tiers."""

    clause: Clause
    tiers: tuple[Mapping[str, int], ...]


def marks(text: str, clauses: Sequence[Wanted], worst: int, names: Sequence[str]) -> tuple[Mark, ...]:
    """Return the ranges of the text that matched a clause up to the hit's worst tier, in order, without overlaps."""
    where = map_positions(text)
    by_place: dict[int, list[Token]] = defaultdict(list)
    for token in tokens(where.text):
        by_place[token.place].append(token)
    ranges = []
    for one in clauses:
        for place in list(by_place):
            match = _match_at(one, by_place, place, worst)
            if match is not None:
                start, end, tier = match
                ranges.append(Mark(*where.original(start, end), names[tier]))
    ranges.sort(key=lambda mark: (mark.start, -mark.end))
    distinct: list[Mark] = []
    for mark in ranges:
        if not distinct or mark.start >= distinct[-1].end:
            distinct.append(mark)
    return tuple(distinct)


def _match_at(one: Wanted, by_place: Mapping[int, list[Token]], place: int, worst: int) -> tuple[int, int, int] | None:
    """Return start, end and worst tier of the clause's match at this place, or None if it does not match here."""
    start, end, tier = -1, -1, 0
    for part, tiers in zip(one.clause.parts, one.tiers, strict=True):
        fitting = [t for t in by_place.get(place + part.offset, ()) if tiers.get(t.term, worst + 1) <= worst]
        if not fitting:
            return None
        best = min(fitting, key=lambda token: tiers[token.term])
        begin, stop = _inside(best, part.term, part.fit)
        start = begin if start < 0 else start
        end = max(end, stop)
        tier = max(tier, tiers[best.term])
    return start, end, tier


def _inside(token: Token, part: str, fit: str) -> tuple[int, int]:
    """Return the range of the token that matched: the substring for `contains`, `starts` and `ends`, else all of it."""
    at = token.term.rfind(part) if fit == "ends" else token.term.find(part)
    if fit not in {"contains", "starts", "ends"} or at < 0 or len(token.term) != token.end - token.start:
        return token.start, token.end
    return token.start + at, token.start + at + len(part)
