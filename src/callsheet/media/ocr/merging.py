"""Words of several passes as one list: where two passes saw the same place, the surer one is kept."""

from __future__ import annotations

from .records import Box, Word

SAME = 0.5  # of the smaller box
MARGIN = 2.0  # so that a tie does not tear a line apart
DOUBTFUL = 60.0  # an old word below this may give way to a shorter one


def merged(words: list[Word], more: list[Word]) -> list[Word]:
    """`words`, with those of a later pass that are new, or better than all that they cover."""
    kept = list(words)
    for word in more:
        covered = [old for old in kept if overlap(old.box, word.box) >= SAME]
        if not covered or _is_better(word, covered):
            kept = [old for old in kept if old not in covered]
            kept.append(word)
    return kept


def overlap(one: Box, other: Box) -> float:
    """The area that two boxes share, as a part of the smaller."""
    width = min(one.x + one.width, other.x + other.width) - max(one.x, other.x)
    height = min(one.y + one.height, other.y + other.height) - max(one.y, other.y)
    smaller = min(one.width * one.height, other.width * other.height)
    return width * height / smaller if width > 0 and height > 0 and smaller else 0.0


def _is_better(new: Word, covered: list[Word]) -> bool:
    """One word instead of its torn pieces, or a surer one; but never a piece instead of a word that is sure."""
    sure = [old for old in covered if old.confidence >= DOUBTFUL]
    letters = sum(len(old.text) for old in sure)
    if len(new.text) < letters:
        return False
    return len(covered) > 1 or all(new.confidence > old.confidence + MARGIN for old in covered)
