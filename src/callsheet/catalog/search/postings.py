"""The search index of a video: word places, packed as 20 bits of segment in order of time and 12 bits of word position.

It is written inside the caller's transaction. `search_state.version` is raised late in the transaction: on PostgreSQL
its row lock makes transactions commit in the order of their versions, so that a reader of one version has read all
earlier versions.
"""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from callsheet.kernel.errors import InvalidInput

from .db_requests import Ask, Steps
from .query import entity_flag, language_flag
from .words import normal, tokens

PLACE_BITS = 12
MAX_PLACE = (1 << PLACE_BITS) - 1025  # a word moved back by a whole query stays clear of the segment before
MAX_SEGMENTS = 1 << 20
MAX_MS = (1 << 32) - 1  # 49 days


class Line(NamedTuple):
    """A row of `search_materialized`, as input of the index."""

    row_id: int
    segment_id: str
    t_start: int
    t_end: int
    text: str
    confidence: float
    language: str | None


class Tag(NamedTuple):
    """A row of `entities`, as input of the index."""

    segment_id: str
    entity_type: str
    value: str
    normalized_value: str


class Indexed(NamedTuple):
    """The index entries of one video."""

    places: dict[str, bytes]
    counts: dict[str, int]  # number of segments per word; 0 for filter terms
    facts: bytes
    row_ids: bytes


def entries_of(lines: Sequence[Line], tags: Iterable[Tag]) -> Indexed:
    """Return the index entries of a video from its segments in order of time and its entities."""
    if len(lines) > MAX_SEGMENTS:
        raise InvalidInput(f"the video has {len(lines)} segments; at most {MAX_SEGMENTS} can be searched")
    places: dict[str, array[int]] = {}
    counts: dict[str, int] = {}
    for ordinal, line in enumerate(lines):
        base = ordinal << PLACE_BITS
        terms = [(token.term, base | min(token.place, MAX_PLACE)) for token in tokens(normal(line.text))]
        for term, place in terms:
            if term in places:
                places[term].append(place)
            else:
                places[term] = array("I", (place,))
        for term in {term for term, _ in terms}:
            counts[term] = counts.get(term, 0) + 1
    flags = _flags(lines, tags)
    return Indexed(
        {term: _as_bytes(part) for term, part in (places | flags).items()},
        counts | dict.fromkeys(flags, 0),
        facts_of(lines),
        _as_bytes(array("q", (line.row_id for line in lines))),
    )


def _flags(lines: Sequence[Line], tags: Iterable[Tag]) -> dict[str, array[int]]:
    """Return the filter terms with their segments: one per language, entity type, entity value, and type with value."""
    ordinals = {line.segment_id: ordinal for ordinal, line in enumerate(lines)}
    ordinals_by_flag: dict[str, set[int]] = {}
    for ordinal, line in enumerate(lines):
        if line.language:
            ordinals_by_flag.setdefault(language_flag(line.language), set()).add(ordinal)
    for tag in tags:
        if tag.segment_id in ordinals:
            values = {tag.value, tag.normalized_value}
            keys = [(tag.entity_type, None), *((kind, v) for kind in (tag.entity_type, None) for v in values)]
            for kind, value in keys:
                ordinals_by_flag.setdefault(entity_flag(kind, value), set()).add(ordinals[tag.segment_id])
    return {
        flag: array("I", (ordinal << PLACE_BITS for ordinal in sorted(at))) for flag, at in ordinals_by_flag.items()
    }


def facts_of(lines: Sequence[Line]) -> bytes:
    """Return confidence, start and end of all segments as bytes: three consecutive arrays."""
    confidence = _as_bytes(array("d", (line.confidence for line in lines)))
    starts = _as_bytes(array("I", (min(line.t_start, MAX_MS) for line in lines)))
    return confidence + starts + _as_bytes(array("I", (min(line.t_end, MAX_MS) for line in lines)))


def _as_bytes(numbers: array[int] | array[float]) -> bytes:
    """Return an array as bytes, little-endian on every machine."""
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


NOTHING = Indexed({}, {}, b"", b"")


def enter(video_id: str, owner_id: str, team_id: str | None) -> Steps[None]:
    """Assign a new video its number; later videos have greater numbers."""
    yield Ask("enter", (video_id, owner_id, team_id))


def index(video_id: str) -> Steps[None]:
    """Replace the video's index entries, computed from its rows in `search_materialized` and `entities`."""
    lines = [Line(*row) for row in (yield Ask("lines", (video_id,)))]
    tags = [Tag(*row) for row in (yield Ask("tags", (video_id,)))]
    if not (yield Ask("numbered", (video_id,))):
        yield Ask("enter_late", (video_id,))
    yield from _replace(video_id, entries_of(lines, tags))


def forget(video_id: str) -> Steps[None]:
    """Delete the video's index entries, except for its number."""
    yield from _replace(video_id, NOTHING)


def remove(video_id: str) -> Steps[None]:
    """Delete the video's index entries and its number. Safe to call twice."""
    yield from _replace(video_id, NOTHING)
    yield Ask("remove", (video_id,))


def _replace(video_id: str, new: Indexed) -> Steps[None]:
    rows = yield Ask("numbered", (video_id,))
    if not rows:
        return
    ((number, owner_id, team_id, words),) = rows
    old: dict[str, int] = json.loads(words)
    if not old and not new.places and not new.facts:
        return
    if old:
        yield Ask("drop_postings", (number, sorted(old)))
    if new.places:
        yield Ask("add_postings", rows=[(term, number, new.places[term]) for term in sorted(new.places)])
    ((version,),) = yield Ask("next_version")
    yield from _count(old, new.counts, owner_id, team_id or "")
    line = json.dumps(new.counts, ensure_ascii=False)
    segments = len(new.row_ids) // 8
    yield Ask("note_video", (number, version, segments, new.facts, new.row_ids, line))


def _count(old: dict[str, int], new: dict[str, int], owner_id: str, team_id: str) -> Steps[None]:
    """Update word frequencies by the difference of two texts; delete words whose count drops to 0."""
    changes = {term: new.get(term, 0) - old.get(term, 0) for term in sorted({*old, *new})}
    changes = {term: change for term, change in changes.items() if change}
    if changes:
        yield Ask("count_terms", rows=[(term, owner_id, team_id, change) for term, change in changes.items()])
    unused = [term for term, change in changes.items() if change < 0 and term not in new]
    if unused:
        yield Ask("drop_terms", (owner_id, team_id, unused))
