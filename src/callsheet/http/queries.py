"""Refuses queries that repeat a parameter, except list parameters: two values of one parameter would be ambiguous."""

from __future__ import annotations

from urllib.parse import unquote_plus

from .problems import Problem

REPEATABLE = frozenset({"status", "video_id"})  # the parameters that take several values
SHOWN = 64


def refusal(query: bytes) -> Problem | None:
    """Return the Problem for a query that repeats a parameter, or None for a valid query."""
    if query.count(b"=") < 2:  # noqa: PLR2004 - of one parameter there are no two values
        return None
    seen: set[str] = set()
    for part in query.split(b"&"):
        name = unquote_plus(part.partition(b"=")[0].decode("latin-1"))
        if name in seen and name not in REPEATABLE:
            return Problem("validation_failed", f"{name[:SHOWN]}: give this parameter once; it was given twice")
        seen.add(name)
    return None
