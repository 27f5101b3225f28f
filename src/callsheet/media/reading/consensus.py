"""What several noisy readings of one text say together: a vote for each word."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping
from typing import Generic, NamedTuple, TypeVar

from rapidfuzz.distance import Levenshtein

from .normalise import normalized
from .text_similarity import shape

Said = TypeVar("Said", bound=Hashable)

CANDIDATES = 12
# A word stays when readings of this share of the weight have it. Engines lose words more often than they add some, and
# are less sure of those that they add.
PRESENT, PRESENT_AND_SURE = 1 / 3, 1 / 10
ABOUT = 0.02  # of confidence


class Voice(NamedTuple):
    """What a reading counts, and how sure the engine was of it (0..1)."""

    weight: float
    confidence: float


class _Slot(Generic[Said]):
    """A place in the text: what is said to stand there, and how sure the surest was. `silent` say nothing of it."""

    def __init__(self) -> None:
        self.votes: defaultdict[Said, float] = defaultdict(float)
        self.sure = 0.0
        self.silent = 0.0

    def hear(self, said: Said, voice: Voice) -> None:
        self.votes[said] += voice.weight
        self.sure = max(self.sure, voice.confidence)

    def is_there(self, total: float, typical: float) -> bool:
        """Whether anything stands there; `typical` is how sure readings are on the whole."""
        least = PRESENT_AND_SURE if self.sure >= typical - ABOUT else PRESENT
        return sum(self.votes.values()) >= least * (total - self.silent) > 0

    def heaviest(self) -> list[Said]:
        return sorted(self.votes, key=lambda said: (self.votes[said], str(said)), reverse=True)[:CANDIDATES]


def consensus(readings: Mapping[str, Voice]) -> str:
    """The text that readings agree upon. Of one reading: itself."""
    if len(readings) == 1:
        return next(iter(readings))
    pivot = _pivot(readings).split()
    words: list[_Slot[str]] = [_Slot() for _ in pivot]
    added: list[_Slot[tuple[str, ...]]] = [_Slot() for _ in range(len(pivot) + 1)]
    for text, voice in sorted(readings.items()):
        _vote(pivot, text.split(), voice, (words, added))
    total = sum(voice.weight for voice in readings.values())
    typical = sum(voice.weight * voice.confidence for voice in readings.values()) / total
    said: list[str] = []
    for at, extra in enumerate(added):
        if extra.is_there(total, typical):
            said += extra.heaviest()[0]
        if at < len(pivot) and words[at].is_there(total, typical):
            said.append(_nearest(words[at]))
    return " ".join(said or pivot)


def _vote(
    pivot: list[str], words: list[str], voice: Voice, slots: tuple[list[_Slot[str]], list[_Slot[tuple[str, ...]]]]
) -> None:
    """Word for word where as many stand on both sides."""
    for change in Levenshtein.opcodes(_folded(pivot), _folded(words)):
        mine = range(change.src_start, change.src_end)
        theirs = words[change.dest_start : change.dest_end]
        if len(mine) == len(theirs):
            for at, word in zip(mine, theirs, strict=True):
                slots[0][at].hear(word, voice)
        elif not mine:
            slots[1][change.src_start].hear(tuple(theirs), voice)
        elif theirs:  # words were split or joined: neither side is counted
            for at in mine:
                slots[0][at].silent += voice.weight


def _nearest(slot: _Slot[str]) -> str:
    """The word that is nearest to all: when each reading has another letter wrong, the right one is."""
    words = slot.heaviest()
    if len(words) < 3:  # noqa: PLR2004 - of two, the heavier one
        return words[0]
    away = {word: sum(slot.votes[other] * Levenshtein.distance(word, other) for other in words) for word in words}
    return min(words, key=lambda word: (away[word], -slot.votes[word], word))


def _pivot(readings: Mapping[str, Voice]) -> str:
    """The reading with the most weight; those that differ in the case of letters alone count together."""
    of_form: defaultdict[str, float] = defaultdict(float)
    for text, voice in sorted(readings.items()):
        of_form[normalized(text)] += voice.weight
    form = max(of_form, key=lambda text: (of_form[text], text))
    return max((text for text in readings if normalized(text) == form), key=lambda text: (readings[text], text))


def _folded(words: list[str]) -> list[str]:
    return [shape(normalized(word)).text for word in words]
