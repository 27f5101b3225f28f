"""Words → lines of text. Pure: no picture is looked at.

Words of one line of one pass belong together, and so do parts of lines that continue one another. What is left out is
what engines make of textures: signs without a letter or digit at the ends of a line, and lines of nothing else.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from statistics import median_low

from .records import Box, Region, Word

WEAK = 0.5  # a word below this part of the least confidence goes, however sure its line is
FAR = 3.0  # line heights between two words: the next column
NEAR = 1.0  # line heights between parts of one line
ALIKE = 2.0  # times as high, at most, is one part as the other
LEVEL = 0.6  # of the lower height: two words stand on one line
LEAST_LETTERS = 0.5  # of the signs of a line
SURE = 0.9  # a single letter alone needs as much, and a part of a line that is not sure as a whole
LEAST_SURE = 4  # letters that stay of a line that is not sure as a whole
SHARED_CASE = 3  # words of one sign each: so many are a texture
MEANT = frozenset("$€£¥₹%&+@#=<>→←•–—-/*?!")  # signs that stand alone in real text
_WIDE = ("W", "F")


def regions(words: Iterable[Word], min_confidence: float = 0.6) -> list[Region]:
    """One region per line, from top to bottom; `min_confidence` (0..1) is asked of a line as a whole."""
    strong = [word for word in map(_cleaned, words) if word.text and word.confidence >= 100 * min_confidence * WEAK]
    made = (region for line in _lines(strong) for region in _believed(line, min_confidence))
    kept = [region for region in made if region.confidence >= min_confidence and _is_text(region)]
    return sorted(kept, key=lambda region: (region.box.y, region.box.x))


def _believed(line: list[Word], min_confidence: float) -> list[Region]:
    """A line; where one long word makes it unsure as a whole, such as a path, the parts of it that are sure."""
    whole = _region(_trimmed(line))
    if whole.confidence >= min_confidence:
        return [whole]
    runs = [list(run) for sure, run in groupby(line, key=lambda word: word.confidence >= 100 * SURE) if sure]
    return [_region(_trimmed(run)) for run in runs if sum(map(_letters, run)) >= LEAST_SURE]


def _letters(word: Word) -> int:
    return sum(sign.isalnum() for sign in word.text)


def _cleaned(word: Word) -> Word:
    """Without control signs and spaces."""
    text = "".join(sign for sign in word.text if sign.isprintable() and not sign.isspace())
    return word if text == word.text else word._replace(text=text)


def _lines(words: Sequence[Word]) -> list[list[Word]]:
    """Those of each pass, torn at wide gaps, then joined over passes."""
    groups: dict[tuple[str, int, int], list[Word]] = {}
    for word in words:
        groups.setdefault((word.pass_id, word.block, word.line), []).append(word)
    parts = [part for group in groups.values() for part in _torn(group)]
    joined: list[list[Word]] = []
    for part in sorted(parts, key=lambda part: part[0].box.x):
        line = next((line for line in joined if _continues(line, part)), None)
        if line is None:
            joined.append(part)
        else:
            line += part
            line.sort(key=lambda word: word.box.x)
    return joined


def _torn(group: list[Word]) -> list[list[Word]]:
    """A line as its pass ordered it, in parts where a gap is as wide as between columns."""
    parts = [[group[0]]]
    for before, word in pairwise(group):
        gap = word.box.x - before.box.x - before.box.width
        if gap > FAR * max(before.box.height, word.box.height):
            parts.append([])
        parts[-1].append(word)
    return parts


def _continues(line: list[Word], part: list[Word]) -> bool:
    """Level with the line and no farther from it than a word; a pass for sparse text tears lines apart."""
    one, other = _around(line), _around(part)
    shared = min(one.y + one.height, other.y + other.height) - max(one.y, other.y)
    low, high = sorted((_height(line), _height(part)))
    gap = max(one.x, other.x) - min(one.x + one.width, other.x + other.width)
    return shared >= LEVEL * low and high <= ALIKE * low and gap <= NEAR * low


def _height(words: Sequence[Word]) -> int:
    """Of most words: now and then an engine gives one word a box of twice the height."""
    return median_low(word.box.height for word in words)


def _trimmed(line: list[Word]) -> list[Word]:
    """Without signs at both ends that mean nothing there."""
    first = next((at for at, word in enumerate(line) if _means(word.text)), len(line))
    last = next((at for at in range(len(line) - 1, first - 1, -1) if _means(line[at].text)), first - 1)
    return line[first : last + 1] or line[:1]


def _means(text: str) -> bool:
    return any(sign.isalnum() for sign in text) or (len(text) == 1 and text in MEANT)


def _region(words: Sequence[Word]) -> Region:
    """Confidence by length: one wrong short word says little about a long line."""
    lengths = [len(word.text) for word in words]
    confidence = sum(word.confidence * length for word, length in zip(words, lengths, strict=True)) / sum(lengths)
    spoken: dict[str, int] = {}
    for word, length in zip(words, lengths, strict=True):
        spoken[word.language] = spoken.get(word.language, 0) + length
    language = max(spoken, key=lambda code: spoken[code])
    return Region(_joined(words), _around(words), round(confidence / 100, 4), language, tuple(words))


def _joined(words: Sequence[Word]) -> str:
    """With spaces, but not between Chinese or Japanese signs, which have none."""
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
