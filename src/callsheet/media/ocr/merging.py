"""Merge the words of several passes: where two passes saw the same place, the more confident word stays."""

from __future__ import annotations

from .records import Box, Word

SAME = 0.5  # shared area of the smaller box
MARGIN = 2.0  # so that a tie does not tear a line apart
DOUBTFUL = 60.0  # an earlier word below this may be replaced by a shorter one


def merge(words: list[Word], more: list[Word]) -> list[Word]:
    """Return `words`, plus the later pass's words that are new or better than the words they overlap."""
    words_so_far = list(words)
    for word in more:
        overlapping = [old for old in words_so_far if overlap(old.box, word.box) >= SAME]
        if not overlapping or _is_better(word, overlapping):
            words_so_far = [old for old in words_so_far if old not in overlapping]
            words_so_far.append(word)
    return words_so_far


def overlap(one: Box, other: Box) -> float:
    """Return the shared area of two boxes, relative to the smaller."""
    width = min(one.x + one.width, other.x + other.width) - max(one.x, other.x)
    height = min(one.y + one.height, other.y + other.height) - max(one.y, other.y)
    smaller = min(one.width * one.height, other.width * other.height)
    return width * height / smaller if width > 0 and height > 0 and smaller else 0.0


def _is_better(new: Word, overlapping: list[Word]) -> bool:
    """Whether one word should replace its fragments or a less confident word; a fragment never replaces it."""
    confident = [old for old in overlapping if old.confidence >= DOUBTFUL]
    letters = sum(len(old.text) for old in confident)
    if len(new.text) < letters:
        return False
    return len(overlapping) > 1 or all(new.confidence > old.confidence + MARGIN for old in overlapping)
