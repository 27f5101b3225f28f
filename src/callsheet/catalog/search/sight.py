"""What a reader may see, as the name and the arguments of a query. Every query of rows goes through here."""

from __future__ import annotations

from typing import Any

from callsheet.catalog.records import Reader

from .steps import Ask


def seen_by(reader: Reader, name: str, *arguments: Any) -> Ask:
    """The query as it is for one who sees all; else its `own_` twin, which asks for owner and teams last."""
    if reader.sees_all:
        return Ask(name, arguments)
    teams = [team for team in reader.team_ids if team]
    return Ask(f"own_{name}", (*arguments, reader.owner_id or None, teams))
