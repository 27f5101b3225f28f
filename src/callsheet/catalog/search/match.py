"""Sets of places, segments and hits as arrays of 64-bit numbers whose order is the order of the answer.

A key is a place in a segment: the video's number counted from the greatest, so that newer videos come first (31 bits),
the segment in order of time (20), the word (12). A segment is a key without its word. A rank is a hit: the worst tier
of its words (2), the sum of their tiers (7), the segment (51).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .postings import MAX_SEGMENTS, PLACE_BITS

Numbers = NDArray[np.int64]
Posting = tuple[str, int, bytes]

NEWEST = (1 << 31) - 1
SEGMENT_BITS = MAX_SEGMENTS.bit_length() - 1
VIDEO_SHIFT = SEGMENT_BITS + PLACE_BITS
RANK_SHIFT = 31 + SEGMENT_BITS
TOTAL_BITS = 7
TIER_BITS = 2


class Tiered(NamedTuple):
    """Keys or segments in order, each once, with the best tier that met it."""

    at: Numbers
    tiers: Numbers


class Hits(NamedTuple):
    """Segments in order that met every clause so far."""

    at: Numbers
    worst: Numbers
    total: Numbers


def keys(rows: Sequence[Posting], tier_of: Mapping[str, int], offset: int) -> Tiered:
    """The places of some terms, moved back by `offset` words."""
    rows = sorted(rows, key=lambda row: tier_of[row[0]])
    counts = np.fromiter((len(row[2]) // 4 for row in rows), np.int64, len(rows))
    videos = np.fromiter((NEWEST - row[1] for row in rows), np.int64, len(rows))
    tiers = np.fromiter((tier_of[row[0]] for row in rows), np.int64, len(rows))
    places = np.frombuffer(b"".join(row[2] for row in rows), "<u4").astype(np.int64)
    at = np.repeat(videos << VIDEO_SHIFT, counts) + (places - offset)
    order = np.argsort(at, kind="stable")  # stable: of equal places the one of the best tier stays first
    return _firsts(at[order], np.repeat(tiers, counts)[order])


def segments(places: Tiered) -> Tiered:
    """The segments of some places, each with its best tier."""
    packed = np.sort((places.at >> PLACE_BITS << TIER_BITS) | places.tiers)
    return _firsts(packed >> TIER_BITS, packed & ((1 << TIER_BITS) - 1))


def _firsts(at: Numbers, tiers: Numbers) -> Tiered:
    if not len(at):
        return Tiered(at, tiers)
    first = np.empty(len(at), bool)
    first[0] = True
    np.not_equal(at[1:], at[:-1], out=first[1:])
    return Tiered(at[first], tiers[first])


def side_by_side(a: Tiered, b: Tiered) -> Tiered:
    """Places that are in both, with the worse tier."""
    in_a, in_b = _common(a.at, b.at)
    return Tiered(a.at[in_a], np.maximum(a.tiers[in_a], b.tiers[in_b]))


def first_of(clause: Tiered) -> Hits:
    """The hits of one clause."""
    return Hits(clause.at, clause.tiers, clause.tiers)


def both(hits: Hits, clause: Tiered) -> Hits:
    """The hits that meet this clause, too."""
    a, b = _common(hits.at, clause.at)
    return Hits(hits.at[a], np.maximum(hits.worst[a], clause.tiers[b]), hits.total[a] + clause.tiers[b])


def without(hits: Hits, clause: Tiered) -> Hits:
    """The hits that do not meet this clause."""
    stays = np.ones(len(hits.at), bool)
    stays[_common(hits.at, clause.at)[0]] = False
    return Hits(hits.at[stays], hits.worst[stays], hits.total[stays])


def _common(a: Numbers, b: Numbers) -> tuple[Numbers, Numbers]:
    """Where the elements that both have stand in each. Both are in order, each element once."""
    if len(a) > len(b):
        in_b, in_a = _common(b, a)
        return in_a, in_b
    if not len(a):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    near = np.minimum(np.searchsorted(b, a), len(b) - 1)
    met = np.flatnonzero(b[near] == a)
    return met, near[met]


def everything(videos: Iterable[tuple[int, int]]) -> Hits:
    """All segments of these videos, given as number and how many there are."""
    parts = [((NEWEST - number) << SEGMENT_BITS) + np.arange(count, dtype=np.int64) for number, count in videos]
    at = np.sort(np.concatenate(parts)) if parts else np.empty(0, np.int64)
    return Hits(at, np.zeros(len(at), np.int64), np.zeros(len(at), np.int64))


def videos_of(at: Numbers) -> list[int]:
    """The numbers of the videos that these segments are of, newest first."""
    found = at >> SEGMENT_BITS
    return [NEWEST - int(video) for video in _firsts(found, found).at]


def ranks(hits: Hits, tier: int) -> Numbers:
    """The hits whose worst tier is this one, best first."""
    here = hits.worst == tier
    total = np.minimum(hits.total[here], (1 << TOTAL_BITS) - 1)
    return np.sort(((tier << TOTAL_BITS) + total << RANK_SHIFT) + hits.at[here])


class Ranked(NamedTuple):
    """What a rank says."""

    worst: int
    total: int
    video: int
    ordinal: int


def unranked(rank: int) -> Ranked:
    """A rank taken apart."""
    segment = rank & ((1 << RANK_SHIFT) - 1)
    high = rank >> RANK_SHIFT
    video = NEWEST - (segment >> SEGMENT_BITS)
    return Ranked(high >> TOTAL_BITS, high & ((1 << TOTAL_BITS) - 1), video, segment & (MAX_SEGMENTS - 1))


def segment_of(rank: Numbers) -> Numbers:
    """The segments of some ranks."""
    return rank & ((1 << RANK_SHIFT) - 1)


def facts(packed: bytes) -> tuple[NDArray[np.float64], Numbers, Numbers]:
    """Confidence, start and end of a video's segments."""
    third = len(packed) // 3
    starts, ends = (np.frombuffer(packed[i * third : (i + 1) * third], "<i8") for i in (1, 2))
    return np.frombuffer(packed[:third], "<f8"), starts, ends


def row_id(packed: bytes, ordinal: int) -> int:
    """The row of `search_materialized` of one segment."""
    return int.from_bytes(packed[8 * ordinal : 8 * ordinal + 8], "little", signed=True)


def no_places() -> Tiered:
    """Nothing."""
    return Tiered(np.empty(0, np.int64), np.empty(0, np.int64))


def passing(at: Numbers, allowed: Mapping[int, Any]) -> NDArray[np.bool_]:
    """Which of these segments their video's row of booleans allows. `at` has videos side by side or not."""
    passes = np.zeros(len(at), bool)
    videos, ordinals = at >> SEGMENT_BITS, at & (MAX_SEGMENTS - 1)
    order = np.argsort(videos, kind="stable")
    edges = np.flatnonzero(np.diff(videos[order])) + 1
    for group in np.split(order, edges):
        if len(group):
            passes[group] = allowed[NEWEST - int(videos[group[0]])][ordinals[group]]
    return passes
