"""Sets of places, segments and ranks as arrays of 64-bit integers, which sort in the order of the results.

A place is one word of a segment: the video's number, counted down so that newer videos sort first (31 bits), the
segment in order of time (20 bits), the word (12 bits). A segment is a place without its word bits. A rank is one hit:
the worst tier of its words (2 bits), then the segment (51 bits).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .postings import MAX_SEGMENTS, PLACE_BITS

Numbers = NDArray[np.int64]
Posting = tuple[str, int, bytes]

NEWEST = (1 << 31) - 1
SEGMENT_BITS = MAX_SEGMENTS.bit_length() - 1
VIDEO_SHIFT = SEGMENT_BITS + PLACE_BITS
RANK_SHIFT = 31 + SEGMENT_BITS
TIER_BITS = 2


class Hits(NamedTuple):
    """Sorted, distinct places or segments, each with the tier of the worst word in its match."""

    at: Numbers
    worst: Numbers


def nothing() -> Hits:
    """Return an empty set of hits."""
    return Hits(np.empty(0, np.int64), np.empty(0, np.int64))


def _unpack(rows: Sequence[Posting], tier_by_term: Mapping[str, int]) -> Hits:
    """Return all places of the postings, unsorted."""
    if not rows:
        return nothing()
    terms, videos, packed = zip(*rows, strict=True)
    counts = np.fromiter(map(len, packed), np.int64, len(packed)) >> 2
    tiers = np.fromiter(map(tier_by_term.__getitem__, terms), np.int64, len(terms))
    places = np.frombuffer(b"".join(packed), "<u4").astype(np.int64)
    return Hits(
        places + np.repeat((NEWEST - np.array(videos, np.int64)) << VIDEO_SHIFT, counts), np.repeat(tiers, counts)
    )


def places(rows: Sequence[Posting], tier_by_term: Mapping[str, int], offset: int) -> Hits:
    """Return the places of the postings, moved back by `offset` words."""
    at, worst = _unpack(rows, tier_by_term)
    order = np.lexsort((worst, at))
    return _firsts(at[order] - offset, worst[order])


def segments(rows: Sequence[Posting], tier_by_term: Mapping[str, int]) -> Hits:
    """Return the segments of the postings, each with its best tier."""
    return segments_of(_unpack(rows, tier_by_term))


def segments_of(some: Hits) -> Hits:
    """Return the segments of the places, each with its best tier."""
    pairs = np.sort((some.at >> PLACE_BITS << TIER_BITS) | some.worst)
    return _firsts(pairs >> TIER_BITS, pairs & ((1 << TIER_BITS) - 1))


def _firsts(at: Numbers, worst: Numbers) -> Hits:
    """Drop repeated places from a sorted array; the first entry's tier stays."""
    if not len(at):
        return Hits(at, worst)
    first = np.empty(len(at), bool)
    first[0] = True
    np.not_equal(at[1:], at[:-1], out=first[1:])
    return Hits(at[first], worst[first])


def both(a: Hits, b: Hits) -> Hits:
    """Return the intersection of two sets, with the worse tier of each element."""
    in_a, in_b = _common(a.at, b.at)
    return Hits(a.at[in_a], np.maximum(a.worst[in_a], b.worst[in_b]))


def without(hits: Hits, others: Hits) -> Hits:
    """Return the hits that `others` does not contain."""
    stays = np.ones(len(hits.at), bool)
    stays[_common(hits.at, others.at)[0]] = False
    return Hits(hits.at[stays], hits.worst[stays])


def _common(a: Numbers, b: Numbers) -> tuple[Numbers, Numbers]:
    """Return the indexes of the common elements in each array. Both arrays are sorted, without duplicates."""
    if len(a) > len(b):
        in_b, in_a = _common(b, a)
        return in_a, in_b
    if not len(a):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    near = np.minimum(np.searchsorted(b, a), len(b) - 1)
    matches = np.flatnonzero(b[near] == a)
    return matches, near[matches]


def everything(videos: Iterable[tuple[int, int]]) -> Hits:
    """Return all segments of the videos, which are pairs of video number and segment count."""
    parts = [((NEWEST - number) << SEGMENT_BITS) + np.arange(count, dtype=np.int64) for number, count in videos]
    at = np.sort(np.concatenate(parts)) if parts else np.empty(0, np.int64)
    return Hits(at, np.zeros(len(at), np.int64))


def videos_of(at: Numbers) -> list[int]:
    """Return the video numbers of a sorted array of segments."""
    numbers = at >> SEGMENT_BITS
    return [NEWEST - int(video) for video in _firsts(numbers, numbers).at]


def ranks(hits: Hits, tier: int) -> Numbers:
    """Return the sorted ranks of the hits whose worst tier is `tier`."""
    here: Numbers = hits.at[hits.worst == tier]
    return here + np.int64(tier << RANK_SHIFT)


class Ranked(NamedTuple):
    """The fields of a rank: worst tier, video number, and position of the segment in the video."""

    worst: int
    video: int
    ordinal: int


def unrank(rank: int) -> Ranked:
    """Return the fields of a rank."""
    segment = rank & ((1 << RANK_SHIFT) - 1)
    return Ranked(rank >> RANK_SHIFT, NEWEST - (segment >> SEGMENT_BITS), segment & (MAX_SEGMENTS - 1))


def segment_of(rank: Numbers) -> Numbers:
    """Return the segments of an array of ranks."""
    return rank & ((1 << RANK_SHIFT) - 1)


class Facts(NamedTuple):
    """Confidence, start and end of segments, as parallel arrays."""

    confidence: NDArray[np.float64]
    starts: NDArray[np.uint32]
    ends: NDArray[np.uint32]


def facts(at: Numbers, facts_by_video: Mapping[int, bytes]) -> Facts:
    """Return the facts of a sorted array of segments, from the packed facts of each video."""
    videos = [facts_by_video[video] for video in videos_of(at)]
    counts = [len(video) // 16 for video in videos]
    first = np.diff(at >> SEGMENT_BITS, prepend=-1) != 0
    offsets = np.cumsum([0, *counts[:-1]])
    where = offsets[np.cumsum(first) - 1] + (at & (MAX_SEGMENTS - 1))
    pairs = list(zip(videos, counts, strict=True))
    confidence = np.frombuffer(b"".join(video[: 8 * n] for video, n in pairs), "<f8")
    starts = np.frombuffer(b"".join(video[8 * n : 12 * n] for video, n in pairs), "<u4")
    ends = np.frombuffer(b"".join(video[12 * n :] for video, n in pairs), "<u4")
    return Facts(confidence[where], starts[where], ends[where])


def row_id(row_ids: bytes, ordinal: int) -> int:
    """Return the row id in `search_materialized` of one segment of a video."""
    return int.from_bytes(row_ids[8 * ordinal : 8 * ordinal + 8], "little", signed=True)
