"""Combine several noisy readings of one text by a vote on each word."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping
from typing import Generic, NamedTuple, TypeVar

from rapidfuzz.distance import Levenshtein

from .normalise import normalized
from .text_similarity import shape

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
