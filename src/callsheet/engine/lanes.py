"""Lanes: one queue as several, so that a claim chooses by capability and serves tenants in turn, at no cost to it.

`kernel/lane.py` has their names. Whoever serves `queue` asks for those of its lanes that it can serve, longest unserved
first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from callsheet.kernel.lane import Lane, lane_name, lane_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from callsheet.store.protocol import Backlog

__all__ = ["Lane", "Lanes", "lane_name", "lane_of"]
REFRESH_S = 5.0
SHARE = 50  # a long line takes time to count: no more than a fiftieth of it goes into that
MOST = 64  # lanes of one claim


class Lanes:
    """The lanes that are known to have jobs. `backlog` is asked now and then; hints tell of new ones at once."""

    def __init__(self, backlog: Callable[[], Awaitable[Mapping[str, Backlog]]]) -> None:
        self._backlog = backlog
        self._by_queue: dict[str, dict[str, int]] = {}  # of a queue: its lanes, with the turn in which each was served
        self._heard_at: dict[str, float] = {}
        self._turn = 0
        self._due_at = float("-inf")
        self._asking = asyncio.Lock()

    def heard(self, names: Iterable[str]) -> frozenset[str]:
        """Somebody put jobs into these; the queues that they are lanes of, and themselves."""
        found = set(names)
        for name in tuple(found):
            lane = lane_of(name)
            if lane.queue != name:
                self._by_queue.setdefault(lane.queue, {}).setdefault(name, 0)
                self._heard_at[name] = time.monotonic()
                found.add(lane.queue)
        return frozenset(found)

    async def expand(
        self, queues: Sequence[str], labels: Collection[str] = (), tenants: Collection[str] | None = None
    ) -> tuple[str, ...]:
        """The queues in their order, each with the lanes that these labels can serve; no other tenants' if given.

        A queue and its lanes without a tenant hold jobs of all: which of them are theirs, the claim itself asks.
        """
        await self._refresh()
        wanted: list[str] = []
        for queue in queues:
            lanes = [(0, queue)]
            for name, turn in self._by_queue.get(queue, {}).items():
                lane = lane_of(name)
                if lane.needs <= set(labels) and (tenants is None or not lane.tenant or lane.tenant in tenants):
                    lanes.append((turn, name))
            wanted += [name for _, name in sorted(lanes)[:MOST]]
        return tuple(dict.fromkeys(wanted))

    def served(
        self, asked: Sequence[str], got: Collection[str], *, short: bool, tenants: Collection[str] | None = None
    ) -> None:
        """What a claim found: a lane that was served goes to the end of its turn; after a short claim all are empty.

        After one for some `tenants` that is known of their own lanes alone.
        """
        self._turn += 1
        for name in asked:
            lanes = self._by_queue.get(lane_of(name).queue, {})
            if name in lanes:
                if name in got:
                    lanes[name] = self._turn
                elif short and (tenants is None or lane_of(name).tenant in tenants):
                    self._forget(name)

    async def _refresh(self) -> None:
        if time.monotonic() < self._due_at:
            return
        async with self._asking:
            if (asked_at := time.monotonic()) >= self._due_at:
                self.heard((await self._backlog()).keys())
                for name in [name for name, at in self._heard_at.items() if at < asked_at]:
                    self._forget(name)
                now = time.monotonic()
                self._due_at = now + max(REFRESH_S, SHARE * (now - asked_at))

    def _forget(self, name: str) -> None:
        """It has no jobs any more; whoever puts one in is heard of."""
        self._by_queue.get(lane_of(name).queue, {}).pop(name, None)
        self._heard_at.pop(name, None)
