"""What can be looked for by its kind: mentions, hashtags, URLs, emoji and numbers."""

from __future__ import annotations

from .records import Entity


def entities(text: str) -> list[Entity]:
    """Those of a text, in the order in which they stand in it; each once."""
    raise NotImplementedError
