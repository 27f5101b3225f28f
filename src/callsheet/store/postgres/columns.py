"""Rows as columns, for statements that unnest arrays."""

from __future__ import annotations

from typing import Any


def spread(column: list[Any]) -> list[Any]:
    """A column that has one value in every row as that one value; the statement gives it to all rows."""
    return column[:1] if column.count(column[0]) == len(column) else column
