"""Selects the tenants of a batch whose quota of queued jobs the store must check, and skips tenants far below it."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from callsheet.engine.quotas import Quotas
    from callsheet.kernel.job import NewJob
    from callsheet.store.protocol import Store

LOOK_S = 0.5
SOON_S = 0.05
FEW = 500
MOST = 10_000


class Room:
    """This process's estimate of the tenants' queued jobs.

    A tenant is far below its quota if less than nine tenths were used when the store was last asked, at most LOOK_S
    ago, and jobs added since fill no more than a tenth of the remaining places. Thus up to ten processes together
    respect a quota; an eleventh could exceed the quota by a tenth of the remaining places.
    """

    def __init__(self, store: Store, quotas: Quotas) -> None:
        self._store = store
        self._quotas = quotas
        self._spare: OrderedDict[str, tuple[float, int]] = OrderedDict()

    async def limits(self, batch: Iterable[NewJob]) -> dict[str, int] | None:
        """Return the quotas that the store must check for a batch, or None if there are none."""
        counts = Counter(new.requester_id for new in batch)
        wanted = {name: limit for name in counts if (limit := self._quotas.known(name).queued)}
        if not wanted:
            return None
        await self._look(wanted, counts)
        return {name: limit for name, limit in wanted.items() if not self._takes(name, counts[name])} or None

    def forget(self, requester_id: str) -> None:
        """Record that a tenant was refused: its quota is checked until the store is asked again."""
        self._keep(requester_id, 0)

    async def _look(self, wanted: dict[str, int], counts: Counter[str]) -> None:
        """Ask the store for the queued jobs of tenants with outdated estimates.

        Small quotas are always checked instead.
        """
        now = time.monotonic()
        old = [name for name, limit in wanted.items() if limit > FEW and self._is_old(name, counts[name], now)]
        if not old:
            return
        for name in old:
            self._keep(name, 0)  # concurrent batches are checked meanwhile
        queued = await self._store.queued_of(old, most=max(wanted[name] for name in old))
        for name, used in zip(old, queued, strict=True):
            left = wanted[name] - used
            self._keep(name, left // 10 if left > max(FEW, wanted[name] // 10) else 0)

    def _is_old(self, requester_id: str, count: int, now: float) -> bool:
        """Return whether a tenant's estimate is outdated.

        An estimate is outdated after LOOK_S, or after SOON_S if some free places remain, but too few for `count` jobs.
        """
        at, spare = self._spare.get(requester_id, (float("-inf"), 0))
        return now - at > (LOOK_S if spare == 0 or spare >= count else SOON_S)

    def _takes(self, requester_id: str, count: int) -> bool:
        """Take `count` places from a tenant's estimate. Returns False if too few places are known to be free."""
        at, spare = self._spare.get(requester_id, (float("-inf"), 0))
        if spare < count:
            return False
        self._spare[requester_id] = (at, spare - count)
        return True

    def _keep(self, requester_id: str, spare: int) -> None:
        self._spare[requester_id] = (time.monotonic(), spare)
        self._spare.move_to_end(requester_id)
        if len(self._spare) > MOST:
            self._spare.popitem(last=False)  # an evicted tenant is checked again
