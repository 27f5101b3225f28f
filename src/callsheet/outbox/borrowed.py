"""Attempts in slots that are not their destination's own: they are broken off when they take long and others wait."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import NamedTuple

from .health import Destination


class Loan(NamedTuple):
    """One attempt in a borrowed slot."""

    where: Destination
    task: asyncio.Task[None]


class Borrowed:
    """The attempts of one deliverer that are under way in borrowed slots, by their events' ids."""

    def __init__(self) -> None:
        self._loans: dict[str, Loan] = {}
        self._slow: set[str] = set()
        self._broken_off: set[str] = set()

    def add(self, event_id: str, where: Destination, task: asyncio.Task[None]) -> None:
        """One has begun."""
        self._loans[event_id] = Loan(where, task)

    def mark_slow(self, event_id: str) -> None:
        """One takes long already."""
        if event_id in self._loans:
            self._slow.add(event_id)

    def break_off(self, waiting: Collection[Destination]) -> None:
        """Break off what takes long while destinations of others wait."""
        for event_id, (where, task) in self._loans.items():
            may_be = event_id in self._slow and event_id not in self._broken_off
            if may_be and any(other != where for other in waiting):
                self._broken_off.add(event_id)
                task.cancel()

    def is_broken_off(self, event_id: str) -> bool:
        """Say whether we broke it off; then it has spent no attempt."""
        return event_id in self._broken_off

    def end(self, event_id: str) -> bool:
        """One has ended; says whether it was in a borrowed slot."""
        self._slow.discard(event_id)
        self._broken_off.discard(event_id)
        return self._loans.pop(event_id, None) is not None
