"""Text that passes through the picture from edge to edge, as on a ticker. Frames show parts of it, cut in mid-word.

A part at the right edge is the beginning of what the next frame shows more of, and one at the left edge is the end of
what was there before. Such parts are one text with the whole. In a row in which some text was seen to pass, what is
left over of parts that were misread at an edge belongs to what passes there, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from rapidfuzz import fuzz

from .normalise import normalized
from .tracks import Piece

GAP = 2  # sample periods
ALIKE = 85.0  # of 100: a part, and as much of the whole
SCRAP = 70.0  # and what an edge has cut out of it
FEW = 4  # letters that an edge leaves, and that are read as anything
TELLING = 8  # letters of a text that is looked for elsewhere
MOVES = 3
AROUND_MS = 2_000


def passing(pieces: Sequence[Piece], period_ms: int) -> list[Piece]:
    """Pieces, sorted, in which each text that passes through is one."""
    width = max((piece.box[0] + piece.box[2] for piece in pieces), default=0)
    chains: list[list[Piece]] = []
    done: list[list[Piece]] = []
    for piece in pieces:
        over = [chain for chain in chains if chain[-1].t_end < piece.t_start - GAP * period_ms]
        done += over
        chains = [chain for chain in chains if chain not in over]
        chain = next((chain for chain in chains if _goes_on(chain[-1], piece, width)), None)
        if chain is None:
            chains.append([piece])
        else:
            chain.append(piece)
    return sorted(_whole(chain, width) for chain in (*done, *chains))


class Row(NamedTuple):
    """A part of the picture through which text passes, and when."""

    top: int
    height: int
    t_start: int
    t_end: int

    def has(self, piece: Piece) -> bool:
        """Whether a piece is in it, and at that time."""
        middle = piece.box[1] + piece.box[3] / 2
        near = abs(middle - self.top - self.height / 2) <= self.height / 2
        return near and self.t_start - AROUND_MS <= piece.t_start and piece.t_end <= self.t_end + AROUND_MS


def rows_of_passing(pieces: Iterable[Piece]) -> list[Row]:
    """Where one text is seen at several places, one after the other and always on towards the same side."""
    said: defaultdict[str, list[Piece]] = defaultdict(list)
    for piece in pieces:
        if len(_letters(piece)) >= TELLING:
            said[piece.form].append(piece)
    rows = []
    for found in said.values():
        steps = [
            after.box[0] - before.box[0]
            for before, after in pairwise(found)
            if before.t_end <= after.t_start and _in_one_row(before, after) and _has_moved(before, after)
        ]
        if len(steps) >= MOVES and (all(step < 0 for step in steps) or all(step > 0 for step in steps)):
            first = found[0].box
            rows.append(Row(first[1], max(1, first[3]), found[0].t_start, found[-1].t_end))
    return rows


def gathered(pieces: Sequence[Piece], rows: Sequence[Row]) -> list[Piece]:
    """Pieces, in which the scraps of texts that pass through rows belong to those texts."""
    width = max((piece.box[0] + piece.box[2] for piece in pieces), default=0)
    inside = [piece for piece in pieces if any(row.has(piece) for row in rows)]
    whole: dict[int, Piece] = {}
    for piece in sorted(inside, key=lambda piece: (-len(_letters(piece)), piece)):
        fits = {at: _fit(piece, other, width) for at, other in whole.items()}
        best = max(fits, key=lambda at: (fits[at], -at), default=None)
        if best is None or fits[best] < SCRAP:
            whole[len(whole)] = piece
        else:
            other = whole[best]
            times = (min(other.t_start, piece.t_start), max(other.t_end, piece.t_end))
            whole[best] = other._replace(t_start=times[0], t_end=times[1], seen=other.seen + piece.seen)
    return sorted([*(piece for piece in pieces if piece not in inside), *whole.values()])


def _fit(scrap: Piece, whole: Piece, width: int) -> float:
    """How well a scrap fits a text that passes at its time, from 0 to 100. A few letters at an edge may be misread."""
    apart = max(scrap.t_start - whole.t_end, whole.t_start - scrap.t_end)
    is_few = len(_letters(scrap)) <= FEW and abs(scrap.box[1] - whole.box[1]) <= whole.box[3]
    if apart > AROUND_MS or not (is_few or _in_one_row(scrap, whole)):
        return 0.0
    if scrap.form == whole.form:
        return 100.0
    torn = whole.t_start <= scrap.t_start and scrap.t_end <= whole.t_end  # while all of it is seen
    if not torn and scrap.box[0] > 2 * scrap.box[3] and _right(scrap) < width - 2 * scrap.box[3]:
        return 0.0
    if is_few:
        return SCRAP - max(apart, 0) / AROUND_MS if apart > 0 else SCRAP
    return fuzz.partial_ratio(_letters(scrap), _letters(whole))


def _goes_on(last: Piece, piece: Piece, width: int) -> bool:
    if last.t_end > piece.t_start or not _in_one_row(last, piece) or not _has_moved(last, piece):
        return False
    return last.form == piece.form or _is_cut(last, piece, width)


def _in_one_row(one: Piece, other: Piece) -> bool:
    low, high = sorted((max(one.box[3], 1), max(other.box[3], 1)))
    middles = abs(2 * one.box[1] + one.box[3] - 2 * other.box[1] - other.box[3]) / 2
    return high <= 2 * low and middles <= low / 2


def _has_moved(one: Piece, other: Piece) -> bool:
    """Aside by half of its height at least, at one of its ends."""
    least = max(1, min(one.box[3], other.box[3]) // 2)
    return max(abs(one.box[0] - other.box[0]), abs(_right(one) - _right(other))) >= least


def _right(piece: Piece) -> int:
    return piece.box[0] + piece.box[2]


def _is_cut(one: Piece, other: Piece, width: int) -> bool:
    """One is a part of the other, and cut off where the picture ends."""
    part, whole = sorted((one, other), key=lambda piece: (len(_letters(piece)), piece))
    few, many = _letters(part), _letters(whole)
    near = max(1, part.box[3] // 2)
    if not few or len(few) == len(many):
        return False
    begins = _right(part) >= width - near and fuzz.ratio(few, many[: len(few)]) >= ALIKE
    ends = part.box[0] <= near and fuzz.ratio(few, many[-len(few) :]) >= ALIKE
    return begins or ends


def _letters(piece: Piece) -> str:
    return "".join(sign for sign in piece.form if sign.isalnum())


def _whole(chain: Sequence[Piece], width: int) -> Piece:
    """One piece: all that was seen of the text, as long as any of it was."""
    if len(chain) == 1:
        return chain[0]
    text = _best(chain, width)
    fullest = max(chain, key=lambda piece: (len(_letters(piece)), piece))
    lasts = [piece.t_end - piece.t_start for piece in chain]
    confidence = sum(piece.confidence * last for piece, last in zip(chain, lasts, strict=True)) / sum(lasts)
    return fullest._replace(
        t_start=chain[0].t_start,
        t_end=max(piece.t_end for piece in chain),
        text=text,
        form=normalized(text),
        confidence=round(confidence, 4),
        seen=sum(piece.seen for piece in chain),
    )


def _best(chain: Iterable[Piece], width: int) -> str:
    """Of the readings that no edge cuts the one that was there the longest; the longest text where each is cut."""
    found = list(chain)
    inside = [
        piece for piece in found if piece.box[0] > piece.box[3] // 2 and _right(piece) < width - piece.box[3] // 2
    ]
    if inside:
        most = max(len(_letters(piece)) for piece in inside)
        whole = [piece for piece in inside if len(_letters(piece)) >= most - 1]
        return max(whole, key=lambda piece: (piece.weight, piece)).text
    return max(found, key=lambda piece: (len(_letters(piece)), piece.weight, piece)).text
