"""Join text that passes through the picture from edge to edge, as on a ticker. Frames show parts, cut mid-word.

A part at the right edge begins text that the next frame continues; a part at the left edge ends earlier text. Fragments
and whole text are joined. In a row where text passes, misread fragments at an edge belong to the passing text,
too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from rapidfuzz import fuzz

from .normalise import normalized
from .tracks import Piece, average_confidence

GAP = 2  # sample periods
ALIKE = 85.0  # of 100: similarity of a part and as much of the whole
SCRAP = 70.0  # of 100: similarity of a fragment at an edge
FEW = 4  # so few letters at an edge may be misread as anything
TELLING = 8  # minimum letters of a text that is matched at other positions
MOVES = 3
AROUND_MS = 2_000


def join_passing(pieces: Sequence[Piece], period_ms: int) -> list[Piece]:
    """Join the sorted pieces of each text that passes through."""
    width = max((piece.box[0] + piece.box[2] for piece in pieces), default=0)
    chains: list[list[Piece]] = []
    finished_chains: list[list[Piece]] = []
    for piece in pieces:
        expired_chains = [chain for chain in chains if chain[-1].t_end < piece.t_start - GAP * period_ms]
        finished_chains += expired_chains
        chains = [chain for chain in chains if chain not in expired_chains]
        chain = next((chain for chain in chains if _goes_on(chain[-1], piece, width)), None)
        if chain is None:
            chains.append([piece])
        else:
            chain.append(piece)
    return sorted(_whole(chain, width) for chain in (*finished_chains, *chains))


class Row(NamedTuple):
    """A horizontal band of the picture in which text passes, and when."""

    top: int
    height: int
    t_start: int
    t_end: int

    def has(self, piece: Piece) -> bool:
        """Whether a piece lies in the row's band and time."""
        middle = piece.box[1] + piece.box[3] / 2
        near = abs(middle - self.top - self.height / 2) <= self.height / 2
        return near and self.t_start - AROUND_MS <= piece.t_start and piece.t_end <= self.t_end + AROUND_MS


def rows_of_passing(pieces: Iterable[Piece]) -> list[Row]:
    """Return the rows in which one text appears at several positions, always moving to the same side."""
    pieces_by_form: defaultdict[str, list[Piece]] = defaultdict(list)
    for piece in pieces:
        if len(_letters(piece)) >= TELLING:
            pieces_by_form[piece.form].append(piece)
    rows = []
    for sightings in pieces_by_form.values():
        steps = [
            after.box[0] - before.box[0]
            for before, after in pairwise(sightings)
            if before.t_end <= after.t_start and _in_one_row(before, after) and _has_moved(before, after)
        ]
        if len(steps) >= MOVES and (all(step < 0 for step in steps) or all(step > 0 for step in steps)):
            first = sightings[0].box
            rows.append(Row(first[1], max(1, first[3]), sightings[0].t_start, sightings[-1].t_end))
    return rows


def gather_scraps(pieces: Sequence[Piece], rows: Sequence[Row]) -> list[Piece]:
    """Merge the fragments of passing texts in `rows` into those texts."""
    width = max((piece.box[0] + piece.box[2] for piece in pieces), default=0)
    inside = [piece for piece in pieces if any(row.has(piece) for row in rows)]
    texts: dict[int, Piece] = {}
    for piece in sorted(inside, key=lambda piece: (-len(_letters(piece)), piece)):
        fits = {at: _fit(piece, other, width) for at, other in texts.items()}
        best = max(fits, key=lambda at: (fits[at], -at), default=None)
        if best is None or fits[best] < SCRAP:
            texts[len(texts)] = piece
        else:
            other = texts[best]
            times = (min(other.t_start, piece.t_start), max(other.t_end, piece.t_end))
            texts[best] = other._replace(t_start=times[0], t_end=times[1], seen=other.seen + piece.seen)
    return sorted([*(piece for piece in pieces if piece not in inside), *texts.values()])


def _fit(scrap: Piece, whole: Piece, width: int) -> float:
    """Score from 0 to 100 how a fragment matches a text that passes then. Short edge fragments may be misread."""
    apart = max(scrap.t_start - whole.t_end, whole.t_start - scrap.t_end)
    is_few = len(_letters(scrap)) <= FEW and abs(scrap.box[1] - whole.box[1]) <= whole.box[3]
    if apart > AROUND_MS or not (is_few or _in_one_row(scrap, whole)):
        return 0.0
    if scrap.form == whole.form:
        return 100.0
    is_inside = whole.t_start <= scrap.t_start and scrap.t_end <= whole.t_end  # during the whole text's time
    if not is_inside and scrap.box[0] > 2 * scrap.box[3] and _right(scrap) < width - 2 * scrap.box[3]:
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
    """Whether a piece moved aside by at least half of its height, at either end."""
    least = max(1, min(one.box[3], other.box[3]) // 2)
    return max(abs(one.box[0] - other.box[0]), abs(_right(one) - _right(other))) >= least


def _right(piece: Piece) -> int:
    return piece.box[0] + piece.box[2]


def _is_cut(one: Piece, other: Piece, width: int) -> bool:
    """Whether one text is a fragment of the other, cut off at the picture's edge."""
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
    """Combine a chain into one piece with the whole text, from its first to its last appearance."""
    if len(chain) == 1:
        return chain[0]
    text = _best(chain, width)
    fullest = max(chain, key=lambda piece: (len(_letters(piece)), piece))
    return fullest._replace(
        t_start=chain[0].t_start,
        t_end=max(piece.t_end for piece in chain),
        text=text,
        form=normalized(text),
        confidence=round(average_confidence(chain), 4),
        seen=sum(piece.seen for piece in chain),
    )


def _best(chain: Iterable[Piece], width: int) -> str:
    """Return the longest-lived reading without a cut; if all are cut, the longest text."""
    pieces = list(chain)
    inside = [
        piece for piece in pieces if piece.box[0] > piece.box[3] // 2 and _right(piece) < width - piece.box[3] // 2
    ]
    if inside:
        most = max(len(_letters(piece)) for piece in inside)
        whole = [piece for piece in inside if len(_letters(piece)) >= most - 1]
        return max(whole, key=lambda piece: (piece.weight, piece)).text
    return max(pieces, key=lambda piece: (len(_letters(piece)), piece.weight, piece)).text
