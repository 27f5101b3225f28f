"""What several noisy readings of one text say together: a vote for each word."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeVar

from rapidfuzz.distance import Levenshtein

from .alike import shape
from .normalise import normalized

Said = TypeVar("Said", str, tuple[str, ...])
Votes = defaultdict[Said, float]

CANDIDATES = 12
PRESENT = 1 / 3  # a word stays when readings of this share of the weight have it: engines lose words more than they add


def consensus(readings: Mapping[str, float]) -> str:
    """The text that readings, each with its weight, agree upon. Of one reading: itself."""
    if len(readings) == 1:
        return next(iter(readings))
    pivot = _pivot(readings).split()
    votes: list[Votes[str]] = [defaultdict(float) for _ in pivot]
    added: list[Votes[tuple[str, ...]]] = [defaultdict(float) for _ in range(len(pivot) + 1)]
    silent = [0.0] * len(pivot)  # the weight of readings that say nothing for or against a word
    for text, weight in sorted(readings.items()):
        words = text.split()
        for change in Levenshtein.opcodes(_folded(pivot), _folded(words)):
            mine = range(change.src_start, change.src_end)
            theirs = words[change.dest_start : change.dest_end]
            if len(mine) == len(theirs):
                for at, word in zip(mine, theirs, strict=True):
                    votes[at][word] += weight
            elif not mine:
                added[change.src_start][tuple(theirs)] += weight
            elif theirs:  # words were split or joined: neither side is counted
                for at in mine:
                    silent[at] += weight
    total = sum(readings.values())
    return " ".join(_kept(pivot, votes, added, silent, total)) or " ".join(pivot)


def _kept(
    pivot: list[str],
    votes: list[Votes[str]],
    added: list[Votes[tuple[str, ...]]],
    silent: list[float],
    total: float,
) -> Iterable[str]:
    for at in range(len(pivot) + 1):
        words, weight = _winner(added[at], ())
        if weight >= PRESENT * total:
            yield from words
        if at < len(pivot):
            word = _nearest(votes[at]) or pivot[at]
            if sum(votes[at].values()) >= PRESENT * (total - silent[at]):
                yield word


def _nearest(votes: Votes[str]) -> str:
    """The word that is nearest to all: when each reading has another letter wrong, the right one is."""
    if len(votes) < 3:  # noqa: PLR2004 - of two, the heavier one
        return _winner(votes, "")[0]
    heaviest = sorted(votes, key=lambda word: (votes[word], word), reverse=True)[:CANDIDATES]
    away = {word: sum(votes[other] * Levenshtein.distance(word, other) for other in heaviest) for word in heaviest}
    return min(heaviest, key=lambda word: (away[word], -votes[word], word))


def _winner(votes: Votes[Said], otherwise: Said) -> tuple[Said, float]:
    if not votes:
        return otherwise, 0.0
    return max(votes.items(), key=lambda said: (said[1], said[0]))


def _pivot(readings: Mapping[str, float]) -> str:
    """The reading with the most weight, among those that differ in nothing but letters' size counted together."""
    of_form: Votes[str] = defaultdict(float)
    for text, weight in sorted(readings.items()):
        of_form[normalized(text)] += weight
    form = max(of_form, key=lambda text: (of_form[text], text))
    return max((text for text in readings if normalized(text) == form), key=lambda text: (readings[text], text))


def _folded(words: list[str]) -> list[str]:
    return [shape(normalized(word)).text for word in words]
