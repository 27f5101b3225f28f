"""Attempts in slots beyond their destination's share: a slow attempt is cancelled if other destinations wait."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import NamedTuple

from .health import Destination


class Loan(NamedTuple):
    """An attempt in a borrowed slot: destination and task."""

    where: Destination
    task: asyncio.Task[None]


class Borrowed:
    """The running attempts of a deliverer in borrowed slots, by event id."""

    def __init__(self) -> None:
        self._loans: dict[str, Loan] = {}
        self._slow: set[str] = set()
        self._broken_off: set[str] = set()

    def add(self, event_id: str, where: Destination, task: asyncio.Task[None]) -> None:
        """Record the start of an attempt in a borrowed slot."""
        self._loans[event_id] = Loan(where, task)

    def mark_slow(self, event_id: str) -> None:
        """Mark an event's attempt as slow, if its slot is borrowed."""
        if event_id in self._loans:
            self._slow.add(event_id)

    def break_off(self, waiting: Collection[Destination]) -> None:
        """Cancel slow attempts while other destinations wait for slots."""
        for event_id, (where, task) in self._loans.items():
            may_be = event_id in self._slow and event_id not in self._broken_off
            if may_be and any(other != where for other in waiting):
                self._broken_off.add(event_id)
                task.cancel()

    def is_broken_off(self, event_id: str) -> bool:
        """Return whether the deliverer cancelled an event's attempt; such an event keeps its attempt count."""
        return event_id in self._broken_off

    def end(self, event_id: str) -> bool:
        """Record the end of an attempt; returns whether its slot was borrowed."""
        self._slow.discard(event_id)
        self._broken_off.discard(event_id)
        return self._loans.pop(event_id, None) is not None
