"""The tokeniser: splits text into words with positions. One for both databases, for segments, queries and highlights.

A word is letters and digits of any script. `@name` and `#tag` are indexed beside their bare words; a number with its
fraction is one word, as is an emoji. Scripts without spaces yield each character and each pair of neighbours.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Any, NamedTuple

import regex

LONGEST = 64  # characters of a word; longer words are cut, in the index and in queries
THOUSAND = 3

_JOINED = r"\p{Han}\p{Hiragana}\p{Katakana}\u30fc\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_LETTER = r"\p{L}\p{M}\p{N}"
_ANY = regex.compile(
    r"(?P<scheme>https?://(?:www\.)?)"
    rf"|(?P<tag>(?<![{_LETTER}_])[@#]_*[{_LETTER}][{_LETTER}_]*)"
    r"|(?P<number>\p{Nd}++(?:[.,]\p{Nd}++)+)"
    rf"|(?P<joined>[{_JOINED}]+)"
    rf"|(?P<word>(?:(?![{_JOINED}])[{_LETTER}])+)"
    r"|(?P<emoji>(?![©®])[\p{Extended_Pictographic}\p{Regional_Indicator}])"
)
# The same for plain ASCII, most of what is read: 8 µs a line instead of 20.
_ASCII = re.compile(
    r"(?P<scheme>https?://(?:www\.)?)"
    r"|(?P<tag>(?<![a-z0-9_])[@#]_*[a-z0-9][a-z0-9_]*)"
    r"|(?P<number>[0-9]++(?:[.,][0-9]++)+)"
    r"|(?P<word>[a-z0-9]+)"
)
_BARE = regex.compile(r"[^_]+")
_UNSEEN = regex.compile(r"[\p{Cf}\p{Cs}\x00]+")  # zero-width characters, and those that databases reject
_CLUSTER = regex.compile(r"\X")
_SEPARATORS = regex.compile("[.,]")

_LOOK_ALIKE = str.maketrans({"0": "o", "1": "l", "i": "l", "j": "l", "5": "s", "8": "b", "2": "z", "9": "g", "q": "g"})


class Token(NamedTuple):
    """A word of a text: `place` counts words, `start` and `end` are character offsets. Tokens may share a place."""

    term: str
    place: int
    start: int
    end: int
    is_extra: bool = False  # True for tokens that only the index uses, beside another token


class Mapped(NamedTuple):
    """A normalised text with, for each of its characters, the source range in the original text."""

    text: str
    starts: list[int] | None  # None: every character came from its own place
    ends: list[int] | None

    def original(self, start: int, end: int) -> tuple[int, int]:
        """Return the original text's range that was normalised to characters `start` up to, excluding, `end`."""
        if self.starts is None or self.ends is None:
            return start, end
        return self.starts[start], self.ends[end - 1]


def normal(text: str) -> str:
    """Return text in NFKC, case-folded, without invisible characters."""
    if text.isascii():
        return text.lower()
    text_folded = unicodedata.normalize("NFKC", text).casefold()
    return _UNSEEN.sub("", unicodedata.normalize("NFKC", text_folded))


def map_positions(text: str) -> Mapped:
    """Return `normal(text)` with source ranges, because case folding and NFKC change the length of some characters."""
    if text.isascii():
        return Mapped(text.lower(), None, None)
    parts: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    for cluster in _CLUSTER.finditer(text):
        part = normal(cluster[0])
        parts.append(part)
        starts.extend([cluster.start()] * len(part))
        ends.extend([cluster.end()] * len(part))
    return Mapped("".join(parts), starts, ends)


def tokens(text: str) -> Iterator[Token]:
    """Yield the words of a normalised text, in order of place."""
    place = 0
    pattern: Any = _ASCII if text.isascii() else _ANY
    for match in pattern.finditer(text):
        kind = match.lastgroup
        if kind == "word" or kind == "emoji":  # noqa: PLR1714 - the common case, and this is the inner loop
            start, end = match.span()
            yield Token(match[0][:LONGEST], place, start, end)
            place += 1
        elif kind == "number":
            yield Token(plain_number(match[0])[:LONGEST], place, match.start(), match.end())
            place += 1
        elif kind == "joined":
            yield from _characters(match, place)
            place += len(match[0])
        elif kind == "tag":
            yield Token(match[0][:LONGEST], place, match.start(), match.end())
            for bare in _BARE.finditer(match[0], 1):
                begin = match.start()
                yield Token(bare[0][:LONGEST], place, begin + bare.start(), begin + bare.end(), is_extra=True)
                place += 1


def _characters(match: Any, place: int) -> Iterator[Token]:
    """Yield each pair of neighbours and each character; queries use single characters only from a run of one."""
    run, begin = match[0], match.start()
    for i, character in enumerate(run):
        if i + 1 < len(run):
            yield Token(run[i : i + 2], place + i, begin + i, begin + i + 2)
        yield Token(character, place + i, begin + i, begin + i + 1, is_extra=len(run) > 1)


def plain_number(text: str) -> str:
    """Return a number without thousands separators: 1,299.00 and 1.299,00 become 1299.00; 10.0.0.1 is unchanged."""
    parts = _SEPARATORS.split(text)
    used = set(_SEPARATORS.findall(text))
    thousands = all(len(part) == THOUSAND for part in parts[1:-1]) and len(parts[0]) <= THOUSAND
    if len(parts) > 2 and (not thousands or (len(used) == 1 and len(parts[-1]) != THOUSAND)):  # noqa: PLR2004
        return text
    if len(used) == 1 and thousands and len(parts[-1]) == THOUSAND:
        return "".join(parts)
    return "".join(parts[:-1]) + "." + parts[-1]


def look_alike(term: str) -> str:
    """Return one text for all words that OCR confuses: 0 and o, 1, l and i, 5 and s, rn and m; drops accents."""
    if not term.isascii():
        parts = unicodedata.normalize("NFD", term)
        term = "".join(c for c in parts if not unicodedata.combining(c))
    return term.translate(_LOOK_ALIKE).replace("rn", "m").replace("vv", "w")
