"""Merge detections of single frames into ranges: one text, from its first appearance to its end.

Hashing noisy readings exactly would split one range into four. So readings of one text are grouped first, then vote
on its words, and only the agreed text is hashed. Merging the output again changes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from .consensus import Voice, consensus
from .normalise import display_form, normalized, text_hash
from .passing import gather_scraps, join_passing, rows_of_passing
from .records import Range, Seen
from .tracking import track_texts
from .tracks import Piece


def merge(seen: Sequence[Seen], *, period_ms: int, duration_ms: int) -> list[Range]:
    """Return the ranges of all texts, sorted by time; the order of `seen` does not matter.

    `period_ms` is the time between two samples: text missing for up to two samples counts as present. No range ends
    after `duration_ms`, unless that is 0 (unknown).
    """
    period_ms = max(1, period_ms)
    pieces = sorted(_pieces(seen, period_ms, duration_ms))
    rows = rows_of_passing(pieces)
    while True:
        fewer = gather_scraps(sorted(map(_combine, track_texts(join_passing(pieces, period_ms), period_ms))), rows)
        if len(fewer) == len(pieces):  # no piece was merged, so another pass would change nothing
            return [_range(piece) for piece in fewer]
        pieces = fewer


def _pieces(seen: Iterable[Seen], period_ms: int, duration_ms: int) -> Iterator[Piece]:
    """Convert detections to pieces. A detection without length lasts one sample; one without text is dropped."""
    for one in seen:
        if not (text := display_form(one.text)):
            continue
        start, end = max(0, one.t_start), one.t_end if one.t_end > one.t_start else one.t_start + period_ms
        if duration_ms > 0:
            start, end = min(start, duration_ms - 1), min(end, duration_ms)
        confidence = round(min(1.0, max(0.0, one.confidence)), 4)
        box = (one.box[0], one.box[1], one.box[2], one.box[3])
        yield Piece(start, max(end, start + 1), box, text, normalized(text), confidence, one.language or "", one.seen)


def _combine(pieces: list[Piece]) -> Piece:
    """Combine a track's pieces into one; it gets the box of the reading closest to the agreed text."""
    if len(pieces) == 1:
        return pieces[0]
    readings: defaultdict[str, list[Piece]] = defaultdict(list)
    languages: defaultdict[str, float] = defaultdict(float)
    for piece in pieces:
        readings[piece.text].append(piece)
        languages[piece.language] += piece.weight if piece.language else 0.0
    text = consensus({text: _voice(pieces_of_text) for text, pieces_of_text in readings.items()})
    form = normalized(text)
    best = max(pieces, key=lambda piece: (piece.form == form, piece.weight, piece))
    return Piece(
        min(piece.t_start for piece in pieces),
        max(piece.t_end for piece in pieces),
        best.box,
        text,
        form,
        round(_confidence(pieces), 4),
        max(languages, key=lambda language: (languages[language], language)),
        sum(piece.seen for piece in pieces),
    )


def _voice(pieces: list[Piece]) -> Voice:
    return Voice(sum(piece.weight for piece in pieces), _confidence(pieces))


def _confidence(pieces: list[Piece]) -> float:
    """Return the average confidence, weighted by time."""
    lasts = [piece.t_end - piece.t_start for piece in pieces]
    return sum(piece.confidence * last for piece, last in zip(pieces, lasts, strict=True)) / sum(lasts)


def _range(piece: Piece) -> Range:
    return Range(
        piece.t_start,
        piece.t_end,
        piece.text,
        piece.form,
        text_hash(piece.text),
        piece.confidence,
        piece.box,
        piece.language or None,
        piece.seen,
    )
