"""How many follow-up jobs a tenant-bound worker may create: at most the tenant's remaining quota of queued jobs.

One follow-up job is always allowed in place of its parent, so that a running job can always end. Each process decides
the requests of one tenant one after another, so that each request counts the jobs of earlier requests.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from callsheet.engine.stored import quota_exceeded
from callsheet.http.state import PerServer, ServerState

if TYPE_CHECKING:
    from callsheet.engine.quotas import Quotas

    from .binding import Holder


class Places:
    """The remaining quota for the follow-up jobs of one request. With `quotas` None there is no limit."""

    def __init__(self, quotas: Quotas | None) -> None:
        self._quotas = quotas
        self._left: dict[str, int | None] = {}

    async def take(self, requester_id: str, count: int) -> None:
        """Use quota for a job's `count` follow-up jobs; raises QuotaExceeded if the tenant has too little left."""
        if self._quotas is None or count <= 1:
            return
        if requester_id not in self._left:
            self._left[requester_id] = await self._quotas.room(requester_id)
        left = self._left[requester_id]
        if left is None:
            return
        if left < count:
            limit = self._quotas.limits_of(requester_id).queued or 0
            raise quota_exceeded("queued", requester_id, limit=limit, used=limit - left)
        self._left[requester_id] = left - count


class Lines(WeakValueDictionary[str, asyncio.Lock]):
    """One lock per tenant whose workers are creating follow-up jobs in this process."""


LINES = PerServer(lambda _: Lines())


@contextlib.asynccontextmanager
async def places_of(state: ServerState, worker: Holder, tenants: Iterable[str]) -> AsyncIterator[Places]:
    """Lock the tenants and yield their remaining quotas; workers of all tenants are an operator's and have no limit."""
    if worker.tenants is None:
        yield Places(None)
        return
    lines = LINES.of(state)
    async with contextlib.AsyncExitStack() as stack:
        for tenant in sorted(set(tenants)):  # in order, so that no two wait for each other
            await stack.enter_async_context(lines.setdefault(tenant, asyncio.Lock()))
        yield Places(state.quotas)
