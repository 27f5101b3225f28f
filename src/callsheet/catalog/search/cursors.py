"""Cursors of result pages: the rank of the last hit, bound by a digest to the query that returned the hit."""

from __future__ import annotations

import hashlib

from callsheet.kernel.errors import InvalidInput

from .records import Query

MAX_RANK = 1 << 60


def write(query: Query, rank: int) -> str:
    """Return the cursor of the page after the hit with this rank."""
    return f"{rank:x}.{_digest(query)}"


def read(query: Query) -> int:
    """Return the rank in the query's cursor; raise InvalidInput if the cursor is damaged or of another query."""
    rank, _, digest = (query.cursor or "").partition(".")
    if digest != _digest(query):
        raise InvalidInput("the cursor is not of this query; use the one that came with the page before, or none")
    try:
        found = int(rank, 16)
    except ValueError:
        found = -1
    if not 0 <= found < MAX_RANK:
        raise InvalidInput("the cursor is damaged; use the one that came with the page before, or none")
    return found


def _digest(query: Query) -> str:
    """Return a query's digest, without its limit and cursor: the page size may change from page to page."""
    same = query._replace(limit=0, cursor=None)
    return hashlib.blake2b(repr(tuple(same)).encode("utf-8", "backslashreplace"), digest_size=6).hexdigest()
