"""Convert batches to statement parameters: columns for statements that unnest arrays, and ids that name a job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from callsheet.kernel.new_jobs import IS_UUID


def is_uniform(column: Sequence[Any]) -> bool:
    """Return whether a column has the same value in every row."""
    return column.count(column[0]) == len(column)


def spread(column: Sequence[Any]) -> Sequence[Any]:
    """Return a uniform column as a single value, which the statement repeats for all rows; other columns unchanged."""
    return column[:1] if is_uniform(column) else column


def known_ids(ids: Iterable[str]) -> list[str]:
    """Return the ids that have the form of a job id."""
    return [id_ for id_ in ids if IS_UUID(id_)]
