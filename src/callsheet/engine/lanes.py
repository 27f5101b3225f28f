"""Lanes: one queue as several, so that a claim chooses by capability and serves tenants in turn, at no cost to it.

A job that needs labels stands in `queue+label+label`, one of a tenant in a fair queue in `queue@tenant`; both in
`queue+label@tenant`. Whoever serves `queue` asks for those of its lanes that it can serve, longest unserved first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from callsheet.store.protocol import Backlog

REFRESH_S = 5.0
SHARE = 50  # a long line takes time to count: no more than a fiftieth of it goes into that
MOST = 64  # lanes of one claim


class Lane(NamedTuple):
    """A queue's name, taken apart."""

    queue: str
    needs: frozenset[str] = frozenset()
    tenant: str = ""


def lane_name(queue: str, needs: Iterable[str] = (), tenant: str = "") -> str:
    """The name of a lane; a queue without needs and tenant is its own."""
    labels = "".join(f"+{label}" for label in sorted(set(needs)))
    return f"{queue}{labels}" + (f"@{quote(tenant, safe='')}" if tenant else "")


@lru_cache(maxsize=4096)
def lane_of(name: str) -> Lane:
    """A name, taken apart."""
    rest, _, tenant = name.partition("@")
    queue, *needs = rest.split("+")
    return Lane(queue or name, frozenset(needs), unquote(tenant))


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
        """The queues in their order, each with the lanes that these labels can serve; only these tenants' if given."""
        await self._refresh()
        wanted: list[str] = []
        for queue in queues:
            lanes = [(0, queue)] if tenants is None else []
            for name, turn in self._by_queue.get(queue, {}).items():
                lane = lane_of(name)
                if lane.needs <= set(labels) and (tenants is None or lane.tenant in tenants):
                    lanes.append((turn, name))
            wanted += [name for _, name in sorted(lanes)[:MOST]]
        return tuple(dict.fromkeys(wanted))

    def served(self, asked: Sequence[str], got: Collection[str], *, short: bool) -> None:
        """What a claim found: a lane that was served goes to the end of its turn; after a short claim all are empty."""
        self._turn += 1
        for name in asked:
            lanes = self._by_queue.get(lane_of(name).queue, {})
            if name in lanes:
                if name in got:
                    lanes[name] = self._turn
                elif short:
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
