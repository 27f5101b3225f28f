"""Track texts over time: each piece joins the open track that it continues, or opens a new track.

Only recently ended tracks are open, so the work is linear in the number of pieces, not quadratic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from .text_similarity import Difference, difference, shape
from .tracks import (
    OpenTracks,
    Piece,
    Track,
    at_same_place,
    distance,
    is_cut,
    is_same_box,
    may_have_moved,
    rows_near,
    rows_of,
)

# In sample periods.
GAP = 2  # text missing for this long counts as present
BRIEF = 5  # text visible this briefly may be fading in or out
LONG = 10  # a longer reading is no slip of the engine
DEPTH = 4  # maximum consecutive slips

Join = tuple[int, int, int, int]  # difference, distance moved, index of the piece, serial of the track


def track_texts(pieces: Sequence[Piece], period_ms: int) -> list[list[Piece]]:
    """Group the sorted pieces into lists, one list per text."""
    return _Tracker(period_ms).run(pieces)


class _Tracker:
    def __init__(self, period_ms: int) -> None:
        self.period_ms = period_ms
        self.open = OpenTracks(GAP * period_ms)
        self.tracks: dict[int, Track] = {}
        self._next_serial = 0

    def run(self, pieces: Sequence[Piece]) -> list[list[Piece]]:
        for _, frame in groupby(pieces, key=attrgetter("t_start")):
            self._frame(list(frame))
        return [track.pieces for track in self.tracks.values()]

    def _frame(self, frame: list[Piece]) -> None:
        """Assign the pieces of one frame, best fits first; each track takes at most one piece."""
        remaining, busy = dict(enumerate(frame)), set[int]()
        for look in (
            self._same_text_and_place,
            self._same_text_anywhere,
            self._similar_text_same_place,
            self._similar_text_nearby,
        ):
            joins = sorted(join for at, piece in remaining.items() for join in look(at, piece, busy))
            for _, _, at, serial in joins:
                if at in remaining and serial not in busy and serial in self.tracks:
                    busy.add(serial)
                    self._join(self.tracks[serial], remaining.pop(at))
            if not remaining:
                return
        for piece in remaining.values():
            self._alone(piece)

    def _same_text_and_place(self, at: int, piece: Piece, busy: set[int]) -> Iterator[Join]:
        for track in self.open.with_text(piece):
            if at_same_place(track.box, piece.box) and _is_free(track, piece, busy) and track.form == piece.form:
                yield 0, distance(track.box, piece.box), at, track.serial

    def _same_text_anywhere(self, at: int, piece: Piece, busy: set[int]) -> Iterator[Join]:
        for track in self.open.with_text(piece):
            if _is_free(track, piece, busy) and track.form == piece.form:
                yield 0, distance(track.box, piece.box), at, track.serial

    def _similar_text_same_place(self, at: int, piece: Piece, busy: set[int]) -> Iterator[Join]:
        """Yield tracks at the same place whose text differs only by noise."""
        for track in self.open.around(piece, rows_of(piece.box)).values():
            if not at_same_place(track.box, piece.box) or not _is_free(track, piece, busy):
                continue
            differs = difference(track.form, piece.form)
            if differs <= Difference.NOISE or (differs is Difference.PART and self._is_scrap(track, piece)):
                yield differs, distance(track.box, piece.box), at, track.serial

    def _similar_text_nearby(self, at: int, piece: Piece, busy: set[int]) -> Iterator[Join]:
        """Yield tracks a few lines away whose text differs only by noise, with equal numbers."""
        numbers = shape(piece.form).numbers
        for track in self.open.around(piece, rows_near(piece.box)).values():
            if shape(track.form).numbers != numbers or not _is_free(track, piece, busy):
                continue
            if may_have_moved(track.box, piece.box) and difference(track.form, piece.form) <= Difference.NOISE:
                yield 0, distance(track.box, piece.box), at, track.serial

    def _is_scrap(self, track: Track, piece: Piece) -> bool:
        """Whether a line and a part of it are one text that appears gradually, disappears, or lost words."""
        if len(shape(track.form).text) < len(shape(piece.form).text):
            return track.lasts_ms <= BRIEF * self.period_ms and 3 * track.weight <= piece.weight
        if piece.t_end - piece.t_start <= BRIEF * self.period_ms and 3 * piece.weight <= track.weight:
            return True
        # People add words to a visible line; words that vanish while the rest stays were lost by the engine.
        return is_cut(track.box, piece.box) and 9 * track.weight >= piece.weight

    def _join(self, track: Track, piece: Piece) -> None:
        slip = track.after
        while slip is not None and track.t_end <= slip.t_start < slip.t_end <= piece.t_start:
            following = slip.after  # the slip is shorter than the bridged gap
            self._swallow(track, slip)
            slip = following
        self._add(track, piece)

    def _alone(self, piece: Piece) -> None:
        """Place a piece without an ended track: a duplicate reading, a text after a slip, or a new text."""
        near = self.open.around(piece, rows_of(piece.box)).values()
        for track in near:
            if _is_read_twice(track, piece):
                self._add(track, piece)
                return
        similar = [track for track in near if _is_followed(track, piece)]
        before = max(similar, key=lambda track: (track.t_end, track.serial), default=None)
        again, slips = self._resumed_track(before, piece)
        if again is None:
            self._new(piece, before)
            return
        for slip in reversed(slips):
            self._swallow(again, slip)
        self._add(again, piece)

    def _new(self, piece: Piece, before: Track | None) -> None:
        track = Track(piece, self._next_serial)
        self._next_serial += 1
        self.tracks[track.serial] = track
        self.open.put(track, piece)
        if before is not None:
            track.before, before.after = before, track

    def _resumed_track(self, last: Track | None, piece: Piece) -> tuple[Track | None, list[Track]]:
        """Return the earlier track that a piece resumes, and the slips between; None unless all are slips."""
        slips: list[Track] = []
        track = last
        while track is not None and len(slips) <= DEPTH:
            if slips and difference(track.form, piece.form) <= Difference.NOISE and at_same_place(track.box, piece.box):
                return (track, slips) if all(self._is_misreading(slip, track, piece) for slip in slips) else (None, [])
            slips.append(track)
            began_ms, track = track.t_start, track.before
            if track is not None and began_ms - track.t_end > GAP * self.period_ms:
                break
        return None, []

    def _is_misreading(self, slip: Track, track: Track, piece: Piece) -> bool:
        """Whether a track is a temporary misreading between equal texts: brief for numbers, longer for words."""
        differs = difference(slip.form, track.form)
        if differs is Difference.ALL or slip.weight >= track.weight + piece.weight:
            return False
        if differs is Difference.DIGITS:
            return slip.lasts_ms <= GAP * self.period_ms
        if differs is Difference.PART and len(shape(slip.form).text) < len(shape(track.form).text):
            return True
        return slip.lasts_ms <= LONG * self.period_ms

    def _swallow(self, track: Track, slip: Track) -> None:
        del self.tracks[slip.serial]
        track.swallow(slip)

    def _add(self, track: Track, piece: Piece) -> None:
        track.after = None
        track.add(piece)
        self.open.put(track, piece)


def _is_free(track: Track, piece: Piece, busy: set[int]) -> bool:
    """Whether a track ended before the piece starts and is unassigned in this frame."""
    return track.t_end <= piece.t_start and track.serial not in busy


def _is_read_twice(track: Track, piece: Piece) -> bool:
    """Whether two engine passes read identical pixels simultaneously."""
    return (
        track.t_end > piece.t_start
        and is_same_box(track.box, piece.box)
        and difference(track.form, piece.form) <= Difference.PART
    )


def _is_followed(track: Track, piece: Piece) -> bool:
    """Whether the piece is a similar text that takes the track's place."""
    return (
        track.t_end <= piece.t_start
        and at_same_place(track.box, piece.box)
        and difference(track.form, piece.form) is not Difference.ALL
    )
