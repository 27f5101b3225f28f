"""How the search talks to a database: it asks for rows by the name of a query, and whoever runs it answers.

So there is one program for both databases, and it neither waits nor blocks.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class Ask(NamedTuple):
    """One named query: its arguments, or for a write of many rows the rows. A list is an array to the database."""

    name: str
    arguments: tuple[Any, ...] = ()
    rows: list[tuple[Any, ...]] | None = None


Steps = Generator[Ask, list[Any], T]
