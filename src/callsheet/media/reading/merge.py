"""Detections of single frames become ranges: one text, from when it is first seen until it is gone.

Exact hashes of noisy readings would make four ranges out of one, so readings that are one text are found first, then
vote for its words, and only what they agree upon is hashed. What comes out can be put in again and stays as it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from .consensus import Voice, consensus
from .normalise import displayed, normalized, text_hash
from .passing import gathered, passing, rows_of_passing
from .records import Range, Seen
from .tracking import swept
from .tracks import Piece


def merge(seen: Sequence[Seen], *, period_ms: int, duration_ms: int) -> list[Range]:
    """The ranges of all texts, by time; in which order `seen` comes does not matter.

    `period_ms` is the time between two samples: text that is missed for up to two of them was there all the time.
    Nothing ends after `duration_ms`, unless that is 0 and so unknown.
    """
    period_ms = max(1, period_ms)
    pieces = sorted(_pieces(seen, period_ms, duration_ms))
    rows = rows_of_passing(pieces)
    while True:
        fewer = gathered(sorted(map(_together, swept(passing(pieces, period_ms), period_ms))), rows)
        if len(fewer) == len(pieces):  # each piece is alone, so one more sweep would change nothing
            return [_range(piece) for piece in fewer]
        pieces = fewer


def _pieces(seen: Iterable[Seen], period_ms: int, duration_ms: int) -> Iterator[Piece]:
    """Detections as they can be compared. One without length lasts a sample; one without text is left out."""
    for one in seen:
        if not (text := displayed(one.text)):
            continue
        start, end = max(0, one.t_start), one.t_end if one.t_end > one.t_start else one.t_start + period_ms
        if duration_ms > 0:
            start, end = min(start, duration_ms - 1), min(end, duration_ms)
        confidence = round(min(1.0, max(0.0, one.confidence)), 4)
        box = (one.box[0], one.box[1], one.box[2], one.box[3])
        yield Piece(start, max(end, start + 1), box, text, normalized(text), confidence, one.language or "", one.seen)


def _together(pieces: list[Piece]) -> Piece:
    """What the pieces of a track say together; its box is that of the reading that is nearest to it."""
    if len(pieces) == 1:
        return pieces[0]
    readings: defaultdict[str, list[Piece]] = defaultdict(list)
    languages: defaultdict[str, float] = defaultdict(float)
    for piece in pieces:
        readings[piece.text].append(piece)
        languages[piece.language] += piece.weight if piece.language else 0.0
    text = consensus({text: _voice(said) for text, said in readings.items()})
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
    """On average over time."""
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
