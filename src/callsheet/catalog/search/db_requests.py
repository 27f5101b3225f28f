"""The protocol between search and database: the search yields named queries, and the runner sends back their rows.

That makes the search a single program for both databases, without I/O or blocking. Queries of rows go through
`visible_to`, which restricts them to what the reader may see.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple, TypeVar

from callsheet.catalog.records import Reader

T = TypeVar("T")


class Ask(NamedTuple):
    """A named query with arguments, or with `rows` for a write of many rows. The database reads a list as an array."""

    name: str
    arguments: tuple[Any, ...] = ()
    rows: list[tuple[Any, ...]] | None = None


Steps = Generator[Ask, list[Any], T]


def visible_to(reader: Reader, name: str, *arguments: Any) -> Ask:
    """Return the named query if the reader sees all rows, else its `own_` variant with owner and teams appended."""
    if reader.sees_all:
        return Ask(name, arguments)
    teams = [team for team in reader.team_ids if team]
    return Ask(f"own_{name}", (*arguments, reader.owner_id or None, teams))
