"""Where the next page goes on: the last hit's rank, good for the query it came from."""

from __future__ import annotations

import hashlib

from callsheet.kernel.errors import InvalidInput

from .records import Query

MAX_RANK = 1 << 60


def write(query: Query, rank: int) -> str:
    """The cursor after a hit."""
    return f"{rank:x}.{_digest(query)}"


def read(query: Query) -> int:
    """The rank that the query's cursor stands for; raises InvalidInput."""
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
    """A query's fingerprint; how many hits a page has is free to change."""
    same = query._replace(limit=0, cursor=None)
    return hashlib.blake2b(repr(tuple(same)).encode("utf-8", "backslashreplace"), digest_size=6).hexdigest()
