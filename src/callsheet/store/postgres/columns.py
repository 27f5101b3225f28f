"""Rows as columns, for statements that unnest arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def is_uniform(column: Sequence[Any]) -> bool:
    """Whether it has one value in every row."""
    return column.count(column[0]) == len(column)


def spread(column: Sequence[Any]) -> Sequence[Any]:
    """A column that has one value in every row as that one value; the statement gives it to all rows."""
    return column[:1] if is_uniform(column) else column
