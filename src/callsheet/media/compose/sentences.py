"""Text into sentences, and long sentences into pieces that fit a caption or a page."""

from __future__ import annotations

import math
import re

# ends of sentences; after those of Chinese and Japanese no space is needed
_END = re.compile(r"(?:[.!?…؟۔]{1,8}[\"'”’»)\]]{0,4}(?=\s)|[。！？]{1,8}[」』”’）]{0,4})\s*")
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|approx|Dr|Mr|Mrs|Ms|Prof|St|No|Nr|Fig|vol|p|pp|z\.B|d\.h|usw|bzw|ca|M|Mme|Sr|Sra)"
    r"|\b[A-Z]|\b(?:\w\.)+\w)\.$"
)
_CLAUSE = re.compile(r"[,;:—–،؛]\s|[，、；：]")
_WIDE = re.compile(r"[\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]")
LEAST_SHARE = 0.45  # of the most characters: a break before that leaves a stub


def sentences(text: str) -> list[str]:
    """The sentences of a paragraph, in order; nothing of it is lost but the space between them."""
    found: list[str] = []
    start = 0
    for match in _END.finditer(text):
        head = text[start : match.end()].strip()
        follows = text[match.end() : match.end() + 1]
        if _ABBREVIATION.search(head[-24:]) or (follows.islower() and not head.endswith(("!", "?"))):
            continue
        found.append(head)
        start = match.end()
    rest = text[start:].strip()
    return [*found, rest] if rest else found


def pieces(text: str, most_chars: int) -> list[tuple[int, str]]:
    """A sentence in pieces of about at most so many characters, each with its place in the sentence."""
    most = max(8, most_chars // 2 if is_wide(text) else most_chars)
    if len(text) > most:  # of about the same length, so that the last is no stub
        most = min(most, round(len(text) / math.ceil(len(text) / most) * 1.15) + 1)
    found: list[tuple[int, str]] = []
    start = 0
    while len(text) - start > most:
        cut = start + _break(text[start : start + most + 1], most)
        found.append((start, text[start:cut].strip()))
        start = cut
        while start < len(text) and text[start].isspace():
            start += 1
    return [*found, (start, text[start:].strip())] if start < len(text) else found


def is_wide(text: str) -> bool:
    """Whether most of it is written in signs as wide as two letters."""
    return 2 * len(_WIDE.findall(text)) > len(text)


def _break(text: str, most: int) -> int:
    """Where to break: after the last clause, else at the last space, else anywhere."""
    least = int(most * LEAST_SHARE)
    clauses = [match.end() for match in _CLAUSE.finditer(text) if least <= match.end() <= most]
    if clauses:
        return clauses[-1]
    space = text.rfind(" ", least, most + 1)
    return space if space > 0 else most
