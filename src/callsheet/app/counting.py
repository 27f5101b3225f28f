"""Storage quotas for tasks: bytes written by an app's tasks are counted per tenant, against the servers' quotas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callsheet.engine.quotas import Quotas
from callsheet.engine.stored import mark_job

from .per_loop import PerLoop

if TYPE_CHECKING:
    from .application import Callsheet

MOST_MARKED = 1_000


class AppCounter:
    """Counts bytes in the app's store. Quotas come from a server; without a server nothing is refused."""

    def __init__(self, app: Callsheet) -> None:
        self._app = app
        self._quotas = PerLoop(self._open)
        self._marked: dict[str, None] = {}

    async def _open(self) -> Quotas:
        return Quotas((await self._app.engine()).store, None)

    async def charge(self, requester_id: str, key: str, more: int) -> None:
        """Count bytes before they are written under a key; raises QuotaExceeded without counting."""
        from callsheet.objects.folders import part_of  # noqa: PLC0415 - a third of an app's import

        quotas = await self._quotas.get()
        await quotas.refresh()
        await self._mark(requester_id, key)
        await quotas.charge(requester_id, more, part_of(key))

    async def add(self, requester_id: str, keys: dict[str, int]) -> None:
        """Add bytes of existing keys to the count; negative numbers subtract deleted bytes."""
        from callsheet.objects.folders import parts_of  # noqa: PLC0415

        await (await self._quotas.get()).bytes.add(requester_id, parts_of(keys))

    async def _mark(self, requester_id: str, key: str) -> None:
        """Mark a job once as an owner of files, so that housekeeping deletes them together with the job."""
        from callsheet.objects.folders import named_by  # noqa: PLC0415

        named = named_by(key)
        if named.kind == "job" and named.id not in self._marked:
            await mark_job((await self._app.engine()).store, named.id, requester_id)
            self._marked[named.id] = None
            while len(self._marked) > MOST_MARKED:
                self._marked.pop(next(iter(self._marked)))
