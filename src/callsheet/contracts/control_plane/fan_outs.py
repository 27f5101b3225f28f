"""How many jobs a worker of some tenants may create with a success: as many as its tenant may still have in line.

One job in the place of its parent is always let through, since a job that runs must be able to end. Requests of one
tenant are decided one after the other in a process, so that each knows what the others have created.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from callsheet.engine.stored import refused

if TYPE_CHECKING:
    from callsheet.engine.quotas import Quotas
    from callsheet.http.site import Site

    from .binding import Holder


class Places:
    """The places in line that the follow-ups of one request take. `quotas` None: nobody counts them."""

    def __init__(self, quotas: Quotas | None) -> None:
        self._quotas = quotas
        self._left: dict[str, int | None] = {}

    async def take(self, requester_id: str, count: int) -> None:
        """Take places for the follow-ups of one job; raises QuotaExceeded where there are too few."""
        if self._quotas is None or count <= 1:
            return
        if requester_id not in self._left:
            self._left[requester_id] = await self._quotas.room(requester_id)
        left = self._left[requester_id]
        if left is None:
            return
        if left < count:
            limit = self._quotas.known(requester_id).queued or 0
            raise refused("queued", requester_id, limit=limit, used=limit - left)
        self._left[requester_id] = left - count


class Lines(WeakValueDictionary[str, asyncio.Lock]):
    """The tenants of a process whose workers create jobs just now."""


@contextlib.asynccontextmanager
async def places_of(site: Site, worker: Holder, tenants: Iterable[str]) -> AsyncIterator[Places]:
    """The places of a request whose jobs are of these tenants; who works for all tenants is an operator's own."""
    if worker.tenants is None:
        yield Places(None)
        return
    lines: Lines = site.parts.setdefault(Lines, Lines())
    async with contextlib.AsyncExitStack() as stack:
        for tenant in sorted(set(tenants)):  # in order, so that no two wait for each other
            await stack.enter_async_context(lines.setdefault(tenant, asyncio.Lock()))
        yield Places(site.quotas)
