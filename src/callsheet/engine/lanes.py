"""Lanes divide a queue, so that claims choose jobs by capability and serve tenants in turn, without extra cost.

`kernel/lane.py` defines their names. A worker of `queue` claims from the lanes that it can serve, longest unserved
first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from callsheet.kernel.lane import Lane, lane_name, lane_of

if TYPE_CHECKING:
    from callsheet.store.protocol import Backlog

__all__ = ["Lane", "Lanes", "lane_name", "lane_of"]
REFRESH_S = 5.0
SHARE = 50  # counting a long line takes time: at most a fiftieth of all time
MOST = 64  # lanes of one claim


class Lanes:
    """The lanes that have jobs, as far as known.

    `backlog` is read from time to time; hints announce new lanes at once.
    """

    def __init__(self, backlog: Callable[[], Awaitable[Mapping[str, Backlog]]]) -> None:
        self._backlog = backlog
        self._by_queue: dict[str, dict[str, int]] = {}  # per queue, its lanes and the turn of each lane's last service
        self._heard_at: dict[str, float] = {}
        self._turn = 0
        self._due_at = float("-inf")
        self._asking = asyncio.Lock()

    def note_work(self, names: Iterable[str]) -> frozenset[str]:
        """Record lanes that received jobs; return their names and the names of their queues."""
        queues = set(names)
        for name in tuple(queues):
            lane = lane_of(name)
            if lane.queue != name:
                self._by_queue.setdefault(lane.queue, {}).setdefault(name, 0)
                self._heard_at[name] = time.monotonic()
                queues.add(lane.queue)
        return frozenset(queues)

    async def expand(
        self, queues: Sequence[str], labels: Collection[str] = (), tenants: Collection[str] | None = None
    ) -> tuple[str, ...]:
        """Return the queues in order, each with the lanes that these labels can serve, limited to `tenants` if given.

        A queue and its lanes without a tenant hold jobs of all tenants; the claim itself filters these jobs.
        """
        await self._refresh()
        names: list[str] = []
        for queue in queues:
            lanes = [(0, queue)]
            for name, turn in self._by_queue.get(queue, {}).items():
                lane = lane_of(name)
                if lane.needs <= set(labels) and (tenants is None or not lane.tenant or lane.tenant in tenants):
                    lanes.append((turn, name))
            names += [name for _, name in sorted(lanes)[:MOST]]
        return tuple(dict.fromkeys(names))

    def note_claim(
        self, queues: Sequence[str], job_queues: Collection[str], *, short: bool, tenants: Collection[str] | None = None
    ) -> None:
        """Record a claim's result: served lanes move to the end of the turn; a short claim leaves the others empty.

        After a short claim for some `tenants`, only these tenants' own lanes are known to be empty.
        """
        self._turn += 1
        for name in queues:
            lanes = self._by_queue.get(lane_of(name).queue, {})
            if name in lanes:
                if name in job_queues:
                    lanes[name] = self._turn
                elif short and (tenants is None or lane_of(name).tenant in tenants):
                    self._forget(name)

    async def _refresh(self) -> None:
        if time.monotonic() < self._due_at:
            return
        async with self._asking:
            if (asked_at := time.monotonic()) >= self._due_at:
                self.note_work((await self._backlog()).keys())
                for name in [name for name, at in self._heard_at.items() if at < asked_at]:
                    self._forget(name)
                now = time.monotonic()
                self._due_at = now + max(REFRESH_S, SHARE * (now - asked_at))

    def _forget(self, name: str) -> None:
        """Drop an empty lane; a hint announces its next job."""
        self._by_queue.get(lane_of(name).queue, {}).pop(name, None)
        self._heard_at.pop(name, None)
