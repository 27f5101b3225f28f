"""Normalise texts for comparison, hashing and search."""

from __future__ import annotations

import hashlib
import unicodedata

# Invisible characters: soft hyphen, zero width space, word joiner, byte order mark.
# The zero width joiner stays: it holds emoji together.
_INVISIBLE = dict.fromkeys(map(ord, "\u00ad\u200b\u2060\ufeff"))

_NOT_TEXT = frozenset({"Cc", "Cs"})


def display_form(text: str) -> str:
    """Return the text as shown: single spaces, no invisible or control characters, no half surrogates."""
    if text.isascii() and text.isprintable():
        return " ".join(text.split())
    plain = (" " if unicodedata.category(char) in _NOT_TEXT else char for char in text.translate(_INVISIBLE))
    return " ".join("".join(plain).split())


def normalized(text: str) -> str:
    """Return the text in NFKC, casefolded, with single spaces. Idempotent."""
    text_so_far = display_form(text)
    if text_so_far.isascii():
        return text_so_far.lower()
    while True:  # folding can make text that composes anew; twice is enough for all but a few code points
        again = display_form(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text_so_far).casefold()))
        if again == text_so_far:
            return text_so_far
        text_so_far = again


def text_hash(text: str) -> str:
    """Return the SHA-256 of the normalised text, as 64 hex digits."""
    return hashlib.sha256(normalized(text).encode()).hexdigest()
