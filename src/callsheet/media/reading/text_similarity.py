"""Decide whether two readings are one text with OCR noise, or two similar texts.

Engines confuse shapes (l and 1, O and 0, rn and m), split and join words, and lose the ends of lines. People change
numbers and whole words. So similar shapes are unified first, and the remaining differences are classified.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from rapidfuzz import fuzz
from rapidfuzz.distance import Levenshtein

RATIO = 80.0  # of 100; below it two readings are never one text

_STROKES = (
    re.compile(r"(?<=\w)[|]|[|](?=\w)"),
    re.compile(r"[$](?=[^\W\d])"),
)  # next to a letter these are misread l and s
_WORD = re.compile(r"[^\W_]+")
_PAIRS = re.compile("rn|vv")
_ROMAN = re.compile(r"[ivxlc]{1,6}")
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
_SHAPES = str.maketrans("oqliaszbg", "001145289")
Span = tuple[int, int]
_LEAST_WORDS = 2
_DIGIT, _OF_NUMBER = 1, 2


class Difference(IntEnum):
    """The classes of difference between two readings, smallest first."""

    NONE = 0  # only shapes, spaces and signs differ
    NOISE = 1  # letters differ that engines confuse
    PART = 2  # one lacks words or the end of a word
    WORDS = 3  # different words at the same position
    DIGITS = 4  # different numbers
    ALL = 5  # little in common


class Shape(NamedTuple):
    """A text with OCR-confusable letters unified: its words, and which words are numbers.

    `digits` marks, per letter, original digits; `plain` are the words before unification.
    """

    text: str
    words: tuple[str, ...]
    plain: tuple[str, ...]
    digits: tuple[tuple[int, ...], ...]
    numbers: tuple[str, ...]


@lru_cache(maxsize=1 << 16)
def shape(normalized_text: str) -> Shape:
    """Return the shape of a normalised text.

    Signs are dropped: engines read them worst, and nobody searches for them.
    """
    unified_text = _STROKES[1].sub("s", _STROKES[0].sub("l", normalized_text))
    plain = tuple(_PAIRS.sub(_one_letter, word) for word in _WORD.findall(unified_text))
    words = tuple(word.translate(_SHAPES) for word in plain)
    digits = tuple(map(_digits, plain))
    numbers = tuple(word for word, marks in zip(words, digits, strict=True) if _OF_NUMBER in marks)
    return Shape(" ".join(words) or normalized_text, words, plain, digits, numbers)


def difference(one: str, other: str) -> Difference:
    """Classify the difference of two normalised texts; symmetric."""
    if one == other:
        return Difference.NONE
    a, b = shape(one), shape(other)
    if a.text == b.text:
        return Difference.NONE
    if fuzz.ratio(a.text, b.text, score_cutoff=RATIO) < RATIO:
        return Difference.PART if _is_part(a, b) else Difference.ALL
    return _classify(one, other) if one < other else _classify(other, one)  # the pairing of words depends on the order


@lru_cache(maxsize=1 << 14)
def _classify(one: str, other: str) -> Difference:
    a, b = shape(one), shape(other)
    return max((_block(a, b, *spans) for spans in _blocks(a.words, b.words)), default=Difference.NOISE)


def _is_part(a: Shape, b: Shape) -> bool:
    """Whether the shorter text begins or ends the longer one, covers half of it, and keeps every number."""
    if len(a.words) > len(b.words):
        a, b = b, a
    few = len(a.words)
    if few < _LEAST_WORDS or 2 * len(a.text) < len(b.text) or a.numbers != b.numbers:
        return False
    return a.words in (b.words[:few], b.words[-few:])


def _blocks(one: tuple[str, ...], other: tuple[str, ...]) -> Iterator[tuple[Span, Span]]:
    """Yield the differing spans. Adjacent changes form one: "hello world" and "helloworld" differ in one block."""
    start = (0, 0)
    for same in Levenshtein.opcodes(one, other).as_matching_blocks():  # the last block is empty, at both ends
        if start != (same.a, same.b):
            yield (start[0], same.a), (start[1], same.b)
        start = (same.a + same.size, same.b + same.size)


def _block(a: Shape, b: Shape, span_a: Span, span_b: Span) -> Difference:
    """Classify words at the same position. Splitting or joining words makes no difference."""
    left, right = "".join(a.words[slice(*span_a)]), "".join(b.words[slice(*span_b)])
    if left == right:
        return Difference.NONE
    marks_left = [mark for word in a.digits[slice(*span_a)] for mark in word]
    marks_right = [mark for word in b.digits[slice(*span_b)] for mark in word]
    if not left or not right:
        return Difference.DIGITS if _OF_NUMBER in marks_left + marks_right else Difference.PART
    edits = Levenshtein.editops(left, right)
    for edit in edits:
        mark_left = marks_left[edit.src_pos] if edit.tag != "insert" else 0
        mark_right = marks_right[edit.dest_pos] if edit.tag != "delete" else 0
        if (mark_left and mark_right) or _OF_NUMBER in (mark_left, mark_right):
            return Difference.DIGITS
    plain = "".join(a.plain[slice(*span_a)]), "".join(b.plain[slice(*span_b)])
    if len(edits) <= _allowed_edits(*plain):
        return Difference.NOISE
    shorter, longer = sorted((left, right), key=len)
    return Difference.PART if longer.startswith(shorter) or longer.endswith(shorter) else Difference.WORDS


def _allowed_edits(left: str, right: str) -> int:
    """Return how many letters of a word may differ. Short words (such as "in" and "on") and Roman numbers allow 0."""
    length = min(len(left), len(right))
    if _ROMAN.fullmatch(left) and _ROMAN.fullmatch(right):
        return 0
    if _UNSPACED.search(left) or _UNSPACED.search(right):
        return length // 6
    return 0 if length < 3 else max(1, length // 4)  # noqa: PLR2004


def _one_letter(match: re.Match[str]) -> str:
    return "m" if match[0] == "rn" else "w"


def _digits(word: str) -> tuple[int, ...]:
    """Mark digits: those of a number weigh more than single digits inside a word."""
    digits = [char.isdigit() for char in word]
    mark = _OF_NUMBER if 2 * sum(digits) >= len(word) else _DIGIT
    return tuple(mark if digit else 0 for digit in digits)
