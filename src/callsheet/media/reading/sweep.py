"""A sweep over time: each piece joins the open track that it continues, or opens one.

Only tracks that ended a moment ago are open, so the work grows with the number of pieces, not with its square.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from .alike import Difference, difference, shape
from .places import at_same_place, distance, is_same_box, may_have_moved
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
        joins = sorted(join for at, piece in enumerate(frame) for join in self._joins(at, piece))
        for _, _, at, serial in joins:
            if at in left and serial not in taken:
                taken.add(serial)
                self._join(self.tracks[serial], left.pop(at))
        for piece in left.values():
            self._alone(piece)

    def _joins(self, at: int, piece: Piece) -> Iterator[Join]:
        for track in self.open.near(piece):
            if track.t_end <= piece.t_start and (fit := self._fit(track, piece)) is not None:
                yield fit, distance(track.box, piece.box), at, track.serial

    def _fit(self, track: Track, piece: Piece) -> int | None:
        """How well a piece continues a track that has ended, 0 the best; None for not at all."""
        here = at_same_place(track.box, piece.box)
        if not here and track.form != piece.form and not may_have_moved(track.box, piece.box):
            return None
        differs = difference(track.form, piece.form)
        if differs is Difference.NONE:
            return 0 if here else 1
        if differs is Difference.NOISE:
            return 2 if here else 4
        return 3 if differs is Difference.PART and here and self._is_scrap(track, piece) else None

    def _is_scrap(self, track: Track, piece: Piece) -> bool:
        """The shorter one is seen for a moment beside the longer: a line that was just coming or going."""
        lasts_ms = piece.t_end - piece.t_start
        if len(shape(track.form).text) < len(shape(piece.form).text):
            return track.lasts_ms <= BRIEF * self.period_ms and 3 * track.weight <= piece.weight
        return lasts_ms <= BRIEF * self.period_ms and 3 * piece.weight <= track.weight

    def _join(self, track: Track, piece: Piece) -> None:
        slip, track.after = track.after, None
        while slip is not None and track.t_end <= slip.t_start and slip.t_end <= piece.t_start:
            following = slip.after  # it is shorter than the gap that is passed over
            self._swallow(track, slip)
            slip = following
        track.add(piece)
        self.open.put(track, piece)

    def _alone(self, piece: Piece) -> None:
        """No track that has ended goes on with it: it is read twice, or a slip lies between, or it is new."""
        near = list(self.open.near(piece))
        for track in near:
            if _is_read_twice(track, piece):
                self._add(track, piece)
                return
        similar = [track for track in near if _is_followed(track, piece)]
        before = max(similar, key=lambda track: (track.t_end, track.serial), default=None)
        if before is not None and (slips := self._slips(before, piece)):
            again = slips[-1].before
            for slip in reversed(slips):
                self._swallow(again, slip)
            self._add(again, piece)
            return
        self._new(piece, before)

    def _new(self, piece: Piece, before: Track | None) -> None:
        track = Track(piece, self.made)
        self.made += 1
        self.tracks[track.serial] = track
        self.open.put(track, piece)
        if before is not None:
            track.before, before.after = before, track

    def _slips(self, last: Track, piece: Piece) -> list[Track]:
        """The tracks from the last back to one that the piece goes on with, when all of them are slips of it."""
        slips, track = [last], last.before
        while track is not None and len(slips) <= DEPTH and slips[-1].t_start - track.t_end <= GAP * self.period_ms:
            if difference(track.form, piece.form) <= Difference.NOISE and at_same_place(track.box, piece.box):
                return slips if all(self._is_slip(slip, track, piece) for slip in slips) else []
            slips.append(track)
            track = track.before
        return []

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
