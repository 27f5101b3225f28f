"""What the tasks of an app store is counted for their tenants, and held to the quotas that the servers tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callsheet.engine.quotas import Quotas
from callsheet.engine.stored import mark_job

from .per_loop import PerLoop

if TYPE_CHECKING:
    from .application import Callsheet

MOST_MARKED = 1_000


class AppCounter:
    """Counts in the app's own store. Without a server, which has quotas, it refuses nothing."""

    def __init__(self, app: Callsheet) -> None:
        self._app = app
        self._quotas = PerLoop(self._open)
        self._marked: dict[str, None] = {}

    async def _open(self) -> Quotas:
        return Quotas((await self._app.engine()).store, None)

    async def charge(self, requester_id: str, key: str, more: int) -> None:
        """Count bytes that are about to be written below a key; raises QuotaExceeded, and then none is counted."""
        from callsheet.objects.folders import part_of  # noqa: PLC0415 - a third of an app's import

        quotas = await self._quotas.get()
        await quotas.refresh()
        await self._mark(requester_id, key)
        await quotas.charge(requester_id, more, part_of(key))

    async def add(self, requester_id: str, keys: dict[str, int]) -> None:
        """Count bytes below keys that are there already, or that are gone (below 0)."""
        from callsheet.objects.folders import parts_of  # noqa: PLC0415

        await (await self._quotas.get()).bytes.add(requester_id, parts_of(keys))

    async def _mark(self, requester_id: str, key: str) -> None:
        """Note once for each job that it has files: they go when the job is forgotten."""
        from callsheet.objects.folders import named_by  # noqa: PLC0415

        named = named_by(key)
        if named.kind == "job" and named.id not in self._marked:
            await mark_job((await self._app.engine()).store, named.id, requester_id)
            self._marked[named.id] = None
            while len(self._marked) > MOST_MARKED:
                self._marked.pop(next(iter(self._marked)))
