"""One form for texts that say the same: what is compared, hashed and searched."""

from __future__ import annotations

import hashlib
import unicodedata

# Invisible, and no part of what is read: soft hyphen, zero width space, word joiner, byte order mark.
# The zero width joiner stays: it holds emoji together.
_INVISIBLE = dict.fromkeys(map(ord, "\u00ad\u200b\u2060\ufeff"))

_NOT_TEXT = frozenset({"Cc", "Cs"})


def displayed(text: str) -> str:
    """The text as it is shown: single spaces, nothing invisible, no control characters, no halves of surrogates."""
    if text.isascii() and text.isprintable():
        return " ".join(text.split())
    plain = (" " if unicodedata.category(char) in _NOT_TEXT else char for char in text.translate(_INVISIBLE))
    return " ".join("".join(plain).split())


def normalized(text: str) -> str:
    """NFKC, casefolded, single spaces. Applying it twice changes nothing."""
    folded = displayed(text)
    if folded.isascii():
        return folded.lower()
    while True:  # folding can make text that composes anew; twice is enough for all but a few code points
        again = displayed(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", folded).casefold()))
        if again == folded:
            return folded
        folded = again


def text_hash(text: str) -> str:
    """SHA-256 of the normalised text, as 64 hex digits."""
    return hashlib.sha256(normalized(text).encode()).hexdigest()
