"""Filter job ids: text that is no UUID in its usual form names no job and must not reach the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callsheet.kernel.new_jobs import IS_UUID

if TYPE_CHECKING:
    from collections.abc import Iterable


def known_ids(ids: Iterable[str]) -> list[str]:
    """Return the ids that have the form of a job id."""
    return [id_ for id_ in ids if IS_UUID(id_)]
