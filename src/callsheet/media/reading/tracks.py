"""Tracks: readings of one text in successive frames, at one place or moving."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from .geometry import rows_of
from .records import Box

_LONG_AGO = -(1 << 62)


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


class Track:
    """Pieces that are one text.

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
