"""Rows as columns, for statements that unnest arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def is_uniform(column: Sequence[Any]) -> bool:
    """Return whether a column has the same value in every row."""
    return column.count(column[0]) == len(column)


def spread(column: Sequence[Any]) -> Sequence[Any]:
    """Return a uniform column as a single value, which the statement repeats for all rows; other columns unchanged."""
    return column[:1] if is_uniform(column) else column
