"""Merge detections of single frames into ranges: one text, from its first appearance to its end.

Hashing noisy readings exactly would split one range into four. So readings of one text are grouped first, then vote
on its words, and only the agreed text is hashed. Merging the output again changes nothing.

`consensus` combines several noisy readings of one text by a vote on each word.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from rapidfuzz.distance import Levenshtein

from .normalise import display_form, normalized, text_hash
from .passing import gather_scraps, join_passing, rows_of_passing
from .records import Range, Seen
from .text_similarity import shape
from .tracking import track_texts
from .tracks import Piece, average_confidence

Candidate = TypeVar("Candidate", bound=Hashable)

CANDIDATES = 12
# A word stays if readings with this share of the weight have it. Engines lose words more often than they invent some,
# and are less confident of invented ones.
PRESENT, PRESENT_AND_SURE = 1 / 3, 1 / 10
ABOUT = 0.02  # tolerance of confidence


class Voice(NamedTuple):
    """A reading's weight, and the engine's confidence in it (0..1)."""

    weight: float
    confidence: float


class _Slot(Generic[Candidate]):
    """The votes for one position, and the best confidence. `silent` is the weight of readings without a vote."""

    def __init__(self) -> None:
        self.votes: defaultdict[Candidate, float] = defaultdict(float)
        self.sure = 0.0
        self.silent = 0.0

    def hear(self, candidate: Candidate, voice: Voice) -> None:
        self.votes[candidate] += voice.weight
        self.sure = max(self.sure, voice.confidence)

    def is_there(self, total: float, typical: float) -> bool:
        """Whether the position holds a word; `typical` is the average confidence of the readings."""
        least = PRESENT_AND_SURE if self.sure >= typical - ABOUT else PRESENT
        return sum(self.votes.values()) >= least * (total - self.silent) > 0

    def heaviest(self) -> list[Candidate]:
        return sorted(self.votes, key=lambda candidate: (self.votes[candidate], str(candidate)), reverse=True)[
            :CANDIDATES
        ]


def consensus(readings: Mapping[str, Voice]) -> str:
    """Return the text that the readings agree on. A single reading wins unchanged."""
    if len(readings) == 1:
        return next(iter(readings))
    pivot = _pivot(readings).split()
    words: list[_Slot[str]] = [_Slot() for _ in pivot]
    slots_between: list[_Slot[tuple[str, ...]]] = [_Slot() for _ in range(len(pivot) + 1)]
    for text, voice in sorted(readings.items()):
        _vote(pivot, text.split(), voice, (words, slots_between))
    total = sum(voice.weight for voice in readings.values())
    typical = sum(voice.weight * voice.confidence for voice in readings.values()) / total
    agreed_words: list[str] = []
    for at, extra in enumerate(slots_between):
        if extra.is_there(total, typical):
            agreed_words += extra.heaviest()[0]
        if at < len(pivot) and words[at].is_there(total, typical):
            agreed_words.append(_nearest(words[at]))
    return " ".join(agreed_words or pivot)


def _vote(
    pivot: list[str], words: list[str], voice: Voice, slots: tuple[list[_Slot[str]], list[_Slot[tuple[str, ...]]]]
) -> None:
    """Vote word by word where both sides have equally many words."""
    for change in Levenshtein.opcodes(_shapes(pivot), _shapes(words)):
        mine = range(change.src_start, change.src_end)
        theirs = words[change.dest_start : change.dest_end]
        if len(mine) == len(theirs):
            for at, word in zip(mine, theirs, strict=True):
                slots[0][at].hear(word, voice)
        elif not mine:
            slots[1][change.src_start].hear(tuple(theirs), voice)
        elif theirs:  # split or joined words: no vote for either side
            for at in mine:
                slots[0][at].silent += voice.weight


def _nearest(slot: _Slot[str]) -> str:
    """Return the word closest to all candidates: if each reading has another wrong letter, that is the right one."""
    words = slot.heaviest()
    if len(words) < 3:  # noqa: PLR2004 - of two, the heavier one
        return words[0]
    away = {word: sum(slot.votes[other] * Levenshtein.distance(word, other) for other in words) for word in words}
    return min(words, key=lambda word: (away[word], -slot.votes[word], word))


def _pivot(readings: Mapping[str, Voice]) -> str:
    """Return the reading with the most weight; readings that differ only in case count together."""
    of_form: defaultdict[str, float] = defaultdict(float)
    for text, voice in sorted(readings.items()):
        of_form[normalized(text)] += voice.weight
    form = max(of_form, key=lambda text: (of_form[text], text))
    return max((text for text in readings if normalized(text) == form), key=lambda text: (readings[text], text))


def _shapes(words: list[str]) -> list[str]:
    return [shape(normalized(word)).text for word in words]


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
    """Convert detections to pieces. Without a length a detection lasts one sample; empty text is dropped."""
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
        round(average_confidence(pieces), 4),
        max(languages, key=lambda language: (languages[language], language)),
        sum(piece.seen for piece in pieces),
    )


def _voice(pieces: list[Piece]) -> Voice:
    return Voice(sum(piece.weight for piece in pieces), average_confidence(pieces))


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
