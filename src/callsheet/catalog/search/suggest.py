"""Suggestions of words that complete the last word of a user's text."""

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
    """Return completions of the last word of `prefix` from videos that the reader may see, most frequent first."""
    if not 1 <= limit <= MAX_SUGGESTIONS:
        raise InvalidInput(f"limit is {limit}; it must be between 1 and {MAX_SUGGESTIONS}")
    start = _last_word(prefix[-MAX_CHARACTERS:])
    if not start:
        return []
    rows = yield seen_by(reader, "suggestions", start, start + LAST, limit)
    return [Suggestion(word, segments) for word, segments in rows]


def _last_word(text: str) -> str:
    """Return the last word of the text, or a bare @ or #; "" if the text ends otherwise."""
    text = normal(text)
    found = [token for token in tokens(text) if token.end == len(text)]
    if found:
        return max(found, key=lambda token: token.end - token.start).term
    return text[-1:] if text[-1:] in {"@", "#"} else ""
