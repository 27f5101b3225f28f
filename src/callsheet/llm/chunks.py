"""Split long texts into passages of about 800 characters that end at a paragraph or sentence and overlap a little."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

CHUNK_CHARS = 800
OVERLAP_CHARS = 100
# Where a passage may end, best first: after a paragraph, a line, a sentence, a word.
_BORDERS = tuple(
    re.compile(pattern) for pattern in (r"\n\s*\n", r"\n", r"[.!?…。！？]+[\"'”’)\]]*(?=\s)|[。！？]", r"\s")
)

_BLANK = re.compile(r"\s*")


class Chunk(NamedTuple):
    """A passage: the document's text from character `start` to character `end`."""

    start: int
    end: int
    text: str


def chunks_of(text: str, size: int = CHUNK_CHARS, overlap: int = OVERLAP_CHARS) -> list[Chunk]:
    """Return the passages of a text, in order. They cover the whole text except white space at passage ends."""
    return [Chunk(start, end, text[start:end]) for start, end in _without_blank_ends(text, _spans(text, size, overlap))]


def _spans(text: str, size: int, overlap: int) -> Iterator[tuple[int, int]]:
    start = _past_blank(text, 0)
    while start < len(text):
        end = _end(text, start, size)
        yield start, end
        if end >= len(text):
            return
        start = _past_blank(text, _next_start(text, start, end, overlap))


def _end(text: str, start: int, size: int) -> int:
    """Return the last good border in the second half of the passage, or a hard cut if there is no border."""
    limit = start + size
    if limit >= len(text):
        return len(text)
    for border in _BORDERS:
        ends = [match.end() for match in border.finditer(text, start + size // 2, limit)]
        if ends:
            return ends[-1]
    return limit


def _next_start(text: str, start: int, end: int, overlap: int) -> int:
    """Return a sentence start (else a word start) shortly before the last end. It always advances."""
    earliest = max(end - overlap, start + 1)
    for border in _BORDERS[2:]:
        match = border.search(text, earliest, end)
        if match is not None and match.end() < end:
            return match.end()
    return end


def _past_blank(text: str, start: int) -> int:
    match = _BLANK.match(text, start)
    return match.end() if match is not None else start


def _without_blank_ends(text: str, spans: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    for start, end in spans:
        part = text[start:end]
        if bare := part.strip():
            first = start + part.index(bare)
            yield first, first + len(bare)
