"""Visibility: restricts queries to rows that the reader may see. Every query of rows goes through this module."""

from __future__ import annotations

from typing import Any

from callsheet.catalog.records import Reader

from .steps import Ask


def seen_by(reader: Reader, name: str, *arguments: Any) -> Ask:
    """Return the named query if the reader sees all rows, else its `own_` variant with owner and teams appended."""
    if reader.sees_all:
        return Ask(name, arguments)
    teams = [team for team in reader.team_ids if team]
    return Ask(f"own_{name}", (*arguments, reader.owner_id or None, teams))
