"""The protocol between search and database: the search yields named queries, and the runner sends back their rows.

That makes the search a single program for both databases, without I/O or blocking.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class Ask(NamedTuple):
    """A named query with arguments, or with `rows` for a write of many rows. The database reads a list as an array."""

    name: str
    arguments: tuple[Any, ...] = ()
    rows: list[tuple[Any, ...]] | None = None


Steps = Generator[Ask, list[Any], T]
