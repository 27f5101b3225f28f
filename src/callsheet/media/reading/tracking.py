"""A sweep over time: each piece joins the open track that it continues, or opens one.

Only tracks that ended a moment ago are open, so the work grows with the number of pieces, not with its square.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from .geometry import at_same_place, distance, is_cut, is_same_box, may_have_moved, rows_near, rows_of
from .text_similarity import Difference, difference, shape
from .tracks import OpenTracks, Piece, Track

# In sample periods.
GAP = 2  # text that is missed for so long was there all the time
BRIEF = 5  # what is seen for so long may be text that is only coming or going
LONG = 10  # longer than this, a reading is no slip of the engine
DEPTH = 4  # how many slips may follow one another

Join = tuple[int, int, int, int]  # how well a piece continues a track, how far it moved; which piece, which track


def swept(pieces: Sequence[Piece], period_ms: int) -> list[list[Piece]]:
    """Pieces, sorted, in groups that are one text each."""
    return _Sweep(period_ms).run(pieces)


class _Sweep:
    def __init__(self, period_ms: int) -> None:
        self.period_ms = period_ms
        self.open = OpenTracks(GAP * period_ms)
        self.tracks: dict[int, Track] = {}
        self.made = 0

    def run(self, pieces: Sequence[Piece]) -> list[list[Piece]]:
        for _, frame in groupby(pieces, key=attrgetter("t_start")):
            self._frame(list(frame))
        return [track.pieces for track in self.tracks.values()]

    def _frame(self, frame: list[Piece]) -> None:
        """Best fits first; a track goes on with one piece of a frame."""
        left, taken = dict(enumerate(frame)), set[int]()
        for look in (self._unchanged, self._elsewhere, self._here, self._moved):
            joins = sorted(join for at, piece in left.items() for join in look(at, piece, taken))
            for _, _, at, serial in joins:
                if at in left and serial not in taken and serial in self.tracks:
                    taken.add(serial)
                    self._join(self.tracks[serial], left.pop(at))
            if not left:
                return
        for piece in left.values():
            self._alone(piece)

    def _unchanged(self, at: int, piece: Piece, taken: set[int]) -> Iterator[Join]:
        """The same text at the same place."""
        for track in self.open.saying(piece):
            if at_same_place(track.box, piece.box) and _is_free(track, piece, taken) and track.form == piece.form:
                yield 0, distance(track.box, piece.box), at, track.serial

    def _elsewhere(self, at: int, piece: Piece, taken: set[int]) -> Iterator[Join]:
        """The same text at another place."""
        for track in self.open.saying(piece):
            if _is_free(track, piece, taken) and track.form == piece.form:
                yield 0, distance(track.box, piece.box), at, track.serial

    def _here(self, at: int, piece: Piece, taken: set[int]) -> Iterator[Join]:
        """A text that differs no more than noise does, at the same place."""
        for track in self.open.around(piece, rows_of(piece.box)).values():
            if not at_same_place(track.box, piece.box) or not _is_free(track, piece, taken):
                continue
            differs = difference(track.form, piece.form)
            if differs <= Difference.NOISE or (differs is Difference.PART and self._is_scrap(track, piece)):
                yield differs, distance(track.box, piece.box), at, track.serial

    def _moved(self, at: int, piece: Piece, taken: set[int]) -> Iterator[Join]:
        """A text that differs no more than noise does, a few lines away. Its numbers are the same."""
        numbers = shape(piece.form).numbers
        for track in self.open.around(piece, rows_near(piece.box)).values():
            if shape(track.form).numbers != numbers or not _is_free(track, piece, taken):
                continue
            if may_have_moved(track.box, piece.box) and difference(track.form, piece.form) <= Difference.NOISE:
                yield 0, distance(track.box, piece.box), at, track.serial

    def _is_scrap(self, track: Track, piece: Piece) -> bool:
        """Of a line and a part of it: whether they are one text, which is only coming or going, or lost words."""
        if len(shape(track.form).text) < len(shape(piece.form).text):
            return track.lasts_ms <= BRIEF * self.period_ms and 3 * track.weight <= piece.weight
        if piece.t_end - piece.t_start <= BRIEF * self.period_ms and 3 * piece.weight <= track.weight:
            return True
        # People add words to a line that stands; words that go while the rest stays where it is, engines have lost.
        return is_cut(track.box, piece.box) and 9 * track.weight >= piece.weight

    def _join(self, track: Track, piece: Piece) -> None:
        slip = track.after
        while slip is not None and track.t_end <= slip.t_start < slip.t_end <= piece.t_start:
            following = slip.after  # it is shorter than the gap that is passed over
            self._swallow(track, slip)
            slip = following
        self._add(track, piece)

    def _alone(self, piece: Piece) -> None:
        """No track that has ended goes on with it: it is read twice, or a slip lies between, or it is new."""
        near = self.open.around(piece, rows_of(piece.box)).values()
        for track in near:
            if _is_read_twice(track, piece):
                self._add(track, piece)
                return
        similar = [track for track in near if _is_followed(track, piece)]
        before = max(similar, key=lambda track: (track.t_end, track.serial), default=None)
        again, slips = self._resumed(before, piece)
        if again is None:
            self._new(piece, before)
            return
        for slip in reversed(slips):
            self._swallow(again, slip)
        self._add(again, piece)

    def _new(self, piece: Piece, before: Track | None) -> None:
        track = Track(piece, self.made)
        self.made += 1
        self.tracks[track.serial] = track
        self.open.put(track, piece)
        if before is not None:
            track.before, before.after = before, track

    def _resumed(self, last: Track | None, piece: Piece) -> tuple[Track | None, list[Track]]:
        """The track that the piece goes on with, and what lay between, when all of that are slips."""
        slips: list[Track] = []
        track = last
        while track is not None and len(slips) <= DEPTH:
            if slips and difference(track.form, piece.form) <= Difference.NOISE and at_same_place(track.box, piece.box):
                return (track, slips) if all(self._is_slip(slip, track, piece) for slip in slips) else (None, [])
            slips.append(track)
            began_ms, track = track.t_start, track.before
            if track is not None and began_ms - track.t_end > GAP * self.period_ms:
                break
        return None, []

    def _is_slip(self, slip: Track, track: Track, piece: Piece) -> bool:
        """Text that reads otherwise for a while and then as before. A number must be back at once, a word soon."""
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


def _is_free(track: Track, piece: Piece, taken: set[int]) -> bool:
    """It has ended, and no piece of this frame goes on with it."""
    return track.t_end <= piece.t_start and track.serial not in taken


def _is_read_twice(track: Track, piece: Piece) -> bool:
    """The same pixels at the same time, as two passes of an engine give them."""
    return (
        track.t_end > piece.t_start
        and is_same_box(track.box, piece.box)
        and difference(track.form, piece.form) <= Difference.PART
    )


def _is_followed(track: Track, piece: Piece) -> bool:
    """A text like it takes its place."""
    return (
        track.t_end <= piece.t_start
        and at_same_place(track.box, piece.box)
        and difference(track.form, piece.form) is not Difference.ALL
    )
