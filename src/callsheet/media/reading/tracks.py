"""Tracks: readings of one text in successive frames, at one place or moving; and the relations of two boxes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from .records import Box

ROW_PX = 48
_LAST_PX = 65_535  # no frame is larger; all beyond counts as one row
_FAR_HEIGHTS = 6  # how far noisy text may move between two frames, in its own heights
_FAR_ROWS = 5

_LONG_AGO = -(1 << 62)


def at_same_place(one: Box, other: Box) -> bool:
    """Whether boxes share half of the smaller side on each axis. A line that lost a word keeps its place."""
    return _share_half(one[1], one[3], other[1], other[3]) and _share_half(one[0], one[2], other[0], other[2])


def is_same_box(one: Box, other: Box) -> bool:
    """Whether boxes overlap for the greater part of each: both boxes hold readings of the same pixels."""
    across = _overlap(one[0], one[2], other[0], other[2])
    down = _overlap(one[1], one[3], other[1], other[3])
    shared_area = across * down
    return 2 * shared_area >= max(one[2], 1) * max(one[3], 1) and 2 * shared_area >= max(other[2], 1) * max(other[3], 1)


def is_cut(whole: Box, part: Box) -> bool:
    """Whether both boxes are on one line and share their left or right edge."""
    height = min(whole[3], part[3]) or 1
    begins = 2 * abs(whole[0] - part[0]) <= height
    ends = 2 * abs(whole[0] + whole[2] - part[0] - part[2]) <= height
    return (begins or ends) and part[2] < whole[2] and at_same_place(whole, part)


def may_have_moved(one: Box, other: Box) -> bool:
    """Whether text scrolled: boxes of equal size, a few lines apart up, down or aside."""
    height, width = one[3] or 1, one[2] or 1
    if not (height <= 2 * other[3] <= 4 * height and 3 * width <= 4 * other[2] and 3 * other[2] <= 4 * width):
        return False
    aside, down = abs(one[0] - other[0]), abs(one[1] - other[1])
    if aside > down:
        aside, down = down, aside
    return down <= _FAR_HEIGHTS * height and aside <= height


def distance(one: Box, other: Box) -> int:
    """Return the distance of two boxes' corners, summed over both axes."""
    return abs(one[0] - other[0]) + abs(one[1] - other[1])


def rows_of(box: Box) -> range:
    """Return the bands of the picture that a box touches; boxes at the same place share one."""
    first = min(max(box[1], 0), _LAST_PX) // ROW_PX
    return range(first, min(max(box[1] + box[3], 0), _LAST_PX) // ROW_PX + 1)


def rows_near(box: Box) -> range:
    """Return the picture bands from which scrolling text may have reached this box."""
    rows = rows_of(box)
    return range(max(0, rows.start - _FAR_ROWS), rows.stop + _FAR_ROWS)


def _overlap(start: int, size: int, other_start: int, other_size: int) -> int:
    return max(0, min(start + max(size, 1), other_start + max(other_size, 1)) - max(start, other_start))


def _share_half(start: int, size: int, other_start: int, other_size: int) -> bool:
    """Whether two intervals share half of the smaller one.

    Written without `min` and `max`, which took half of the total time of this hottest function.
    """
    if start > other_start:
        start, size, other_start, other_size = other_start, other_size, start, size
    size, other_size = size or 1, other_size or 1
    reach = start + size - other_start
    if reach >= other_size:
        return True
    return 2 * reach >= size or 2 * reach >= other_size


class Piece(NamedTuple):
    """A reading of one frame, or the combined reading of several. Sorted by time, then by position."""

    t_start: int
    t_end: int
    box: Box
    text: str
    form: str  # the normalised text
    confidence: float
    language: str
    seen: int

    @property
    def weight(self) -> float:
        """The reading's weight: its duration times the engine's confidence."""
        return (self.t_end - self.t_start) * max(self.confidence, 0.01)


def average_confidence(pieces: Sequence[Piece]) -> float:
    """Return the average confidence of pieces, weighted by their durations."""
    lasts = [piece.t_end - piece.t_start for piece in pieces]
    return sum(piece.confidence * last for piece, last in zip(pieces, lasts, strict=True)) / sum(lasts)


class Track:
    """All readings (pieces) of one text.

    `before` is the similar text whose place it took; `after` the one that took its place.
    """

    __slots__ = ("after", "before", "box", "form", "pieces", "serial", "t_end", "t_start", "weight", "weights")

    def __init__(self, piece: Piece, serial: int) -> None:
        self.pieces: list[Piece] = []
        self.weights: defaultdict[str, float] = defaultdict(float)
        self.weight = 0.0
        self.serial = serial
        self.t_start, self.t_end, self.box, self.form = piece.t_start, piece.t_end, piece.box, piece.form
        self.before: Track | None = None
        self.after: Track | None = None
        self.add(piece)

    def add(self, piece: Piece) -> None:
        """Add a piece: its box is the text's current position, its form gains its weight."""
        self.pieces.append(piece)
        self.weight += piece.weight
        self.weights[piece.form] += piece.weight
        if (self.weights[piece.form], piece.form) > (self.weights[self.form], self.form):
            self.form = piece.form
        if piece.t_end >= self.t_end:
            self.t_end, self.box = piece.t_end, piece.box

    def swallow(self, slip: Track) -> None:
        """Take over all pieces of another track, and mark that track as long ended."""
        for piece in slip.pieces:
            self.add(piece)
        slip.t_end = _LONG_AGO

    @property
    def lasts_ms(self) -> int:
        """Milliseconds from the first piece to the end of the last."""
        return self.t_end - self.t_start


class OpenTracks:
    """Tracks that a piece may continue, indexed by place and by text. Tracks that ended long ago are dropped."""

    def __init__(self, gap_ms: int) -> None:
        self._gap_ms = gap_ms
        self._shelves: defaultdict[int | str, list[Track]] = defaultdict(list)  # by row, and by text

    def put(self, track: Track, piece: Piece) -> None:
        """Index a track by its newest piece's place and text."""
        for key in (*rows_of(piece.box), piece.form):
            if track not in self._shelves[key]:
                self._shelves[key].append(track)

    def with_text(self, piece: Piece) -> list[Track]:
        """Return tracks with the same text."""
        return self._fresh(piece.form, piece)

    def around(self, piece: Piece, rows: range) -> dict[int, Track]:
        """Return tracks in the given rows, by serial."""
        return {track.serial: track for row in rows for track in self._fresh(row, piece)}

    def _fresh(self, key: int | str, piece: Piece) -> list[Track]:
        shelf = self._shelves.get(key)
        if not shelf:
            return []
        since = piece.t_start - self._gap_ms
        for track in shelf:
            if track.t_end < since:
                shelf = self._shelves[key] = [
                    track_on_shelf for track_on_shelf in shelf if track_on_shelf.t_end >= since
                ]
                break
        return shelf
