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
LEAST_SHARE = 0.6  # of the wanted length: a break before that leaves a stub


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
    found: list[tuple[int, str]] = []
    start = 0
    while (left := len(text) - start) > most:
        wanted = left / math.ceil(left / most)  # of about the same length, so that the last is no stub
        cut = start + _break(text[start : start + most + 1], wanted)
        found.append((start, text[start:cut].strip()))
        start = cut
        while start < len(text) and text[start].isspace():
            start += 1
    return [*found, (start, text[start:].strip())] if start < len(text) else found


def is_wide(text: str) -> bool:
    """Whether most of it is written in signs as wide as two letters."""
    return 2 * len(_WIDE.findall(text)) > len(text)


def _break(text: str, wanted: float) -> int:
    """Where to break, near the wanted length: after a clause, else at a space, else in the middle of a word."""
    most = len(text) - 1
    clauses = [at.end() for at in _CLAUSE.finditer(text) if wanted * LEAST_SHARE <= at.end() <= most]
    spaces = [at + 1 for at, one in enumerate(text[:most]) if one == " " and at > 0]
    spaces += [most] if text[most] == " " else []
    for places in (clauses, spaces):
        if places:
            return min(places, key=lambda place: abs(place - wanted))
    return min(most, math.ceil(wanted))
