"""Split text into sentences, and long sentences into pieces that fit a caption or a page."""

from __future__ import annotations

import math
import re

# sentence ends; Chinese and Japanese ones need no space after them
_END = re.compile(r"(?:[.!?…؟۔]{1,8}[\"'”’»)\]]{0,4}(?=\s)|[。！？]{1,8}[」』”’）]{0,4})\s*")
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|approx|Dr|Mr|Mrs|Ms|Prof|St|No|Nr|Fig|vol|p|pp|z\.B|d\.h|usw|bzw|ca|M|Mme|Sr|Sra)"
    r"|\b[A-Z]|\b(?:\w\.)+\w)\.$"
)
_CLAUSE = re.compile(r"[,;:—–،؛]\s|[，、；：]")
_WIDE = re.compile(r"[\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]")
LEAST_SHARE = 0.6  # of the target length: an earlier break leaves a stub


def sentences(text: str) -> list[str]:
    """Split a paragraph into sentences, in order, with all its characters except spaces between sentences."""
    parts: list[str] = []
    start = 0
    for match in _END.finditer(text):
        head = text[start : match.end()].strip()
        follows = text[match.end() : match.end() + 1]
        if _ABBREVIATION.search(head[-24:]) or (follows.islower() and not head.endswith(("!", "?"))):
            continue
        parts.append(head)
        start = match.end()
    rest = text[start:].strip()
    return [*parts, rest] if rest else parts


def pieces(text: str, most_chars: int) -> list[tuple[int, str]]:
    """Split a sentence into (offset, text) pieces of roughly `most_chars` characters."""
    most = max(8, most_chars // 2 if is_wide(text) else most_chars)
    parts: list[tuple[int, str]] = []
    start = 0
    while (left := len(text) - start) > most:
        target = left / math.ceil(left / most)  # of about the same length, so that the last is no stub
        cut = start + _break(text[start : start + most + 1], target)
        parts.append((start, text[start:cut].strip()))
        start = cut
        while start < len(text) and text[start].isspace():
            start += 1
    return [*parts, (start, text[start:].strip())] if start < len(text) else parts


def is_wide(text: str) -> bool:
    """Whether double-width signs (Chinese, Japanese, Korean) make up most of a text."""
    return 2 * len(_WIDE.findall(text)) > len(text)


def _break(text: str, target: float) -> int:
    """Return the break position near a target length: after a clause, else at a space, else inside a word."""
    most = len(text) - 1
    clauses = [at.end() for at in _CLAUSE.finditer(text) if target * LEAST_SHARE <= at.end() <= most]
    spaces = [at + 1 for at, one in enumerate(text[:most]) if one == " " and at > 0]
    spaces += [most] if text[most] == " " else []
    for places in (clauses, spaces):
        if places:
            return min(places, key=lambda place: abs(place - target))
    return min(most, math.ceil(target))
