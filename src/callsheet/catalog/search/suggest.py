"""Words that begin as a user has begun."""

from __future__ import annotations

from callsheet.catalog.records import Reader
from callsheet.kernel.errors import InvalidInput

from .query import MAX_CHARACTERS
from .records import Suggestion
from .sight import seen_by
from .steps import Steps
from .terms import LAST
from .words import normal, tokens

MAX_SUGGESTIONS = 50


def suggest(prefix: str, limit: int, reader: Reader) -> Steps[list[Suggestion]]:
    """Words in this reader's videos that go on where the last word of `prefix` ends, most frequent first."""
    if not 1 <= limit <= MAX_SUGGESTIONS:
        raise InvalidInput(f"limit is {limit}; it must be between 1 and {MAX_SUGGESTIONS}")
    start = _last_word(prefix[-MAX_CHARACTERS:])
    if not start:
        return []
    rows = yield seen_by(reader, "suggestions", start, start + LAST, limit)
    return [Suggestion(word, segments) for word, segments in rows]


def _last_word(text: str) -> str:
    """The word that the text ends with, or a bare @ or #."""
    text = normal(text)
    found = [token for token in tokens(text) if token.end == len(text)]
    if found:
        return max(found, key=lambda token: token.end - token.start).term
    return text[-1:] if text[-1:] in {"@", "#"} else ""
