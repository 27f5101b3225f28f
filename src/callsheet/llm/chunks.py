"""Long texts as passages of some 800 characters that end where a paragraph or a sentence does, and overlap a little."""

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
    """A passage: `text` is the document's text from `start` to `end`, counted in characters."""

    start: int
    end: int
    text: str


def chunks_of(text: str, size: int = CHUNK_CHARS, overlap: int = OVERLAP_CHARS) -> list[Chunk]:
    """The passages of a text, in order. White space at their ends is left out; together they hold all else."""
    return [Chunk(start, end, text[start:end]) for start, end in _trimmed(text, _spans(text, size, overlap))]


def _spans(text: str, size: int, overlap: int) -> Iterator[tuple[int, int]]:
    start = _past_blank(text, 0)
    while start < len(text):
        end = _end(text, start, size)
        yield start, end
        if end >= len(text):
            return
        start = _past_blank(text, _next_start(text, start, end, overlap))


def _end(text: str, start: int, size: int) -> int:
    """The last good border in the second half of what may be taken; a hard cut where there is none."""
    limit = start + size
    if limit >= len(text):
        return len(text)
    for border in _BORDERS:
        ends = [found.end() for found in border.finditer(text, start + size // 2, limit)]
        if ends:
            return ends[-1]
    return limit


def _next_start(text: str, start: int, end: int, overlap: int) -> int:
    """A little before the last end, at the beginning of a sentence or else of a word; always further on."""
    earliest = max(end - overlap, start + 1)
    for border in _BORDERS[2:]:
        found = border.search(text, earliest, end)
        if found is not None and found.end() < end:
            return found.end()
    return end


def _past_blank(text: str, start: int) -> int:
    found = _BLANK.match(text, start)
    return found.end() if found is not None else start


def _trimmed(text: str, spans: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    for start, end in spans:
        part = text[start:end]
        if bare := part.strip():
            first = start + part.index(bare)
            yield first, first + len(bare)
