"""Tracks: readings of one text in successive frames, at one place or moving."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from .geometry import rows_of
from .records import Box

_LONG_AGO = -(1 << 62)


class Piece(NamedTuple):
    """A reading: of one frame, or what several frames say together. Its order is that of time, then of place."""

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
        """How much it counts: how long it was seen, times how sure the engine was."""
        return (self.t_end - self.t_start) * max(self.confidence, 0.01)


class Track:
    """Pieces that are one text. `before` is the track of a similar text whose place it took; `after` the other way."""

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
        """One more; its box is where the text is now, its form counts by its weight."""
        self.pieces.append(piece)
        self.weight += piece.weight
        self.weights[piece.form] += piece.weight
        if (self.weights[piece.form], piece.form) > (self.weights[self.form], self.form):
            self.form = piece.form
        if piece.t_end >= self.t_end:
            self.t_end, self.box = piece.t_end, piece.box

    def swallow(self, slip: Track) -> None:
        """All pieces of another; that one is over, and long ago."""
        for piece in slip.pieces:
            self.add(piece)
        slip.t_end = _LONG_AGO

    @property
    def lasts_ms(self) -> int:
        """From its first piece to the end of its last."""
        return self.t_end - self.t_start


class OpenTracks:
    """Tracks that a piece may still continue, found by place and by text. Those that ended long ago are forgotten."""

    def __init__(self, gap_ms: int) -> None:
        self._gap_ms = gap_ms
        self._shelves: defaultdict[int | str, list[Track]] = defaultdict(list)  # by row, and by what they say

    def put(self, track: Track, piece: Piece) -> None:
        """The track is now where its newest piece is, and says what that says."""
        for key in (*rows_of(piece.box), piece.form):
            if track not in self._shelves[key]:
                self._shelves[key].append(track)

    def saying(self, piece: Piece) -> list[Track]:
        """Those that say the same."""
        return self._fresh(piece.form, piece)

    def around(self, piece: Piece, rows: range) -> dict[int, Track]:
        """Those in some rows, by their serial."""
        return {track.serial: track for row in rows for track in self._fresh(row, piece)}

    def _fresh(self, key: int | str, piece: Piece) -> list[Track]:
        shelf = self._shelves.get(key)
        if not shelf:
            return []
        since = piece.t_start - self._gap_ms
        for track in shelf:
            if track.t_end < since:
                shelf = self._shelves[key] = [kept for kept in shelf if kept.t_end >= since]
                break
        return shelf
