"""Which tenants of a batch must be held to their quota of queued jobs: those that are not known to be far from it."""

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
    """What this process knows of the tenants' queued jobs.

    Far is less than nine tenths of the quota used when the store was last asked, at most LOOK_S ago, and no more than a
    tenth of what was left then added since. So ten processes at once stay below a quota together; the eleventh could
    pass it by a tenth of what was left.
    """

    def __init__(self, store: Store, quotas: Quotas) -> None:
        self._store = store
        self._quotas = quotas
        self._spare: OrderedDict[str, tuple[float, int]] = OrderedDict()

    async def limits(self, batch: Iterable[NewJob]) -> dict[str, int] | None:
        """The quotas that the store must hold a batch to, None when there are none."""
        counts = Counter(new.requester_id for new in batch)
        wanted = {name: limit for name in counts if (limit := self._quotas.known(name).queued)}
        if not wanted:
            return None
        await self._look(wanted, counts)
        return {name: limit for name, limit in wanted.items() if not self._takes(name, counts[name])} or None

    def forget(self, requester_id: str) -> None:
        """A tenant was refused: it is held to its quota until the store is asked again."""
        self._keep(requester_id, 0)

    async def _look(self, wanted: dict[str, int], counts: Counter[str]) -> None:
        """Ask the store about tenants of whom too little is known; those with small quotas are always checked."""
        now = time.monotonic()
        old = [name for name, limit in wanted.items() if limit > FEW and self._is_old(name, counts[name], now)]
        if not old:
            return
        for name in old:
            self._keep(name, 0)  # those who come meanwhile are checked
        queued = await self._store.queued_of(old, most=max(wanted[name] for name in old))
        for name, used in zip(old, queued, strict=True):
            left = wanted[name] - used
            self._keep(name, left // 10 if left > max(FEW, wanted[name] // 10) else 0)

    def _is_old(self, requester_id: str, count: int, now: float) -> bool:
        """Whether to ask again: after a while, and sooner for a tenant that is far from its quota and quick."""
        at, spare = self._spare.get(requester_id, (float("-inf"), 0))
        return now - at > (LOOK_S if spare == 0 or spare >= count else SOON_S)

    def _takes(self, requester_id: str, count: int) -> bool:
        """Take places that are known to be free; False when there may be too few."""
        at, spare = self._spare.get(requester_id, (float("-inf"), 0))
        if spare < count:
            return False
        self._spare[requester_id] = (at, spare - count)
        return True

    def _keep(self, requester_id: str, spare: int) -> None:
        self._spare[requester_id] = (time.monotonic(), spare)
        self._spare.move_to_end(requester_id)
        if len(self._spare) > MOST:
            self._spare.popitem(last=False)  # whoever is forgotten is checked
