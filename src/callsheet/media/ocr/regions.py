"""Words → lines of text. Pure: this module reads no pictures.

Words of one line of one pass belong together, and so do adjacent parts of lines. Artefacts of textures are dropped:
signs without a letter or digit at the ends of a line, and lines without any letters.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from statistics import median_low

from .records import Box, Region, Word

WEAK = 0.5  # drop a word below this share of the minimum confidence, even in a confident line
FAR = 3.0  # line heights between two words: the next column
NEAR = 1.0  # line heights between parts of one line
ALIKE = 2.0  # maximum ratio of two parts' heights
LEVEL = 0.6  # of the lower height: two words stand on one line
LEAST_LETTERS = 0.5  # share of letters among a line's signs
SURE = 0.9  # minimum for a single letter, and for a part of a doubtful line
LEAST_SURE = 4  # minimum letters of a part of a doubtful line
SHARED_CASE = 3  # this many one-sign words are a texture
SIGNS_IN_TEXT = frozenset("$€£¥₹%&+@#=<>→←•–—-/*?!")  # signs that occur alone in real text
_WIDE = ("W", "F")


def regions(words: Iterable[Word], min_confidence: float = 0.6) -> list[Region]:
    """Return one region per line, from top to bottom. `min_confidence` (0..1) applies to whole lines."""
    confident_words = [
        word for word in map(_clean, words) if word.text and word.confidence >= 100 * min_confidence * WEAK
    ]
    candidates = (region for line in _lines(confident_words) for region in _confident_parts(line, min_confidence))
    lines = [region for region in candidates if region.confidence >= min_confidence and _is_text(region)]
    return sorted(lines, key=lambda region: (region.box.y, region.box.x))


def _confident_parts(line: list[Word], min_confidence: float) -> list[Region]:
    """Return the line, or only its confident parts if one long word (such as a path) spoils the average."""
    whole = _region(_trim(line))
    if whole.confidence >= min_confidence:
        return [whole]
    runs = [list(run) for sure, run in groupby(line, key=lambda word: word.confidence >= 100 * SURE) if sure]
    return [_region(_trim(run)) for run in runs if sum(map(_letters, run)) >= LEAST_SURE]


def _letters(word: Word) -> int:
    return sum(sign.isalnum() for sign in word.text)


def _clean(word: Word) -> Word:
    text = "".join(sign for sign in word.text if sign.isprintable() and not sign.isspace())
    return word if text == word.text else word._replace(text=text)


def _lines(words: Sequence[Word]) -> list[list[Word]]:
    """Group words by pass and line, split at wide gaps, then join over passes."""
    groups: dict[tuple[str, int, int], list[Word]] = {}
    for word in words:
        groups.setdefault((word.pass_id, word.block, word.line), []).append(word)
    parts = [part for group in groups.values() for part in _split_columns(group)]
    lines: list[list[Word]] = []
    for part in sorted(parts, key=lambda part: part[0].box.x):
        line = next((line for line in lines if _continues(line, part)), None)
        if line is None:
            lines.append(part)
        else:
            line += part
            line.sort(key=lambda word: word.box.x)
    return lines


def _split_columns(group: list[Word]) -> list[list[Word]]:
    parts = [[group[0]]]
    for before, word in pairwise(group):
        gap = word.box.x - before.box.x - before.box.width
        if gap > FAR * max(before.box.height, word.box.height):
            parts.append([])
        parts[-1].append(word)
    return parts


def _continues(line: list[Word], part: list[Word]) -> bool:
    """Whether a part continues the line: level, at most one word apart. Sparse-text passes split lines."""
    one, other = _around(line), _around(part)
    shared_height = min(one.y + one.height, other.y + other.height) - max(one.y, other.y)
    low, high = sorted((_height(line), _height(part)))
    gap = max(one.x, other.x) - min(one.x + one.width, other.x + other.width)
    return shared_height >= LEVEL * low and high <= ALIKE * low and gap <= NEAR * low


def _height(words: Sequence[Word]) -> int:
    """Return the median height: engines occasionally give one word a box of twice the height."""
    return median_low(word.box.height for word in words)


def _trim(line: list[Word]) -> list[Word]:
    first = next((at for at, word in enumerate(line) if _means(word.text)), len(line))
    last = next((at for at in range(len(line) - 1, first - 1, -1) if _means(line[at].text)), first - 1)
    return line[first : last + 1] or line[:1]


def _means(text: str) -> bool:
    return any(sign.isalnum() for sign in text) or (len(text) == 1 and text in SIGNS_IN_TEXT)


def _region(words: Sequence[Word]) -> Region:
    """Combine words into a line. Confidence is weighted by length: one short wrong word matters little."""
    lengths = [len(word.text) for word in words]
    confidence = sum(word.confidence * length for word, length in zip(words, lengths, strict=True)) / sum(lengths)
    weight_by_language: dict[str, int] = {}
    for word, length in zip(words, lengths, strict=True):
        weight_by_language[word.language] = weight_by_language.get(word.language, 0) + length
    language = max(weight_by_language, key=lambda code: weight_by_language[code])
    return Region(_join(words), _around(words), round(confidence / 100, 4), language, tuple(words))


def _join(words: Sequence[Word]) -> str:
    """Join words with spaces, except between Chinese or Japanese signs."""
    text = words[0].text
    for word in words[1:]:
        text += word.text if _is_wide(text[-1]) and _is_wide(word.text[0]) else f" {word.text}"
    return text


def _is_wide(sign: str) -> bool:
    return unicodedata.east_asian_width(sign) in _WIDE and not unicodedata.name(sign, "").startswith("HANGUL")


def _is_text(region: Region) -> bool:
    signs = region.text.replace(" ", "")
    letters = sum(sign.isalnum() for sign in signs)
    if letters < LEAST_LETTERS * len(signs) and not _HANDLE.search(region.text):
        return False
    if len(signs) == 1:
        return region.confidence >= SURE or _is_wide(signs)
    lone = all(len(word.text) == 1 for word in region.words)
    return not (lone and len(region.words) >= SHARED_CASE and not signs.isdigit() and not _is_wide(signs[0]))


_HANDLE = re.compile(r"[@#][\w.]{2,}|[$€£¥₹]\s?\d|\d\s?[$€£¥₹%]|\w\.\w{2,}/|C\+\+")


def _around(words: Sequence[Word]) -> Box:
    left, top = min(word.box.x for word in words), min(word.box.y for word in words)
    right = max(word.box.x + word.box.width for word in words)
    bottom = max(word.box.y + word.box.height for word in words)
    return Box(left, top, right - left, bottom - top)
