"""A server with all routes, per store, for tests of quotas and the audit log."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator
from typing import Any

from callsheet.asgi import ROUTERS
from callsheet.engine.quotas import DEFAULTS
from callsheet.http.limits import Limits
from tests import stores
from tests.http.live import Live, serving

JOB = {"task": "chat", "payload": {"prompt": "hi"}}


@functools.cache
def _postgres_url() -> str:
    return stores.fresh_url("postgres")


def store_url(kind: str) -> str:
    """Return a store's URL; tests here share PostgreSQL's database in sequence."""
    return _postgres_url() if kind == "postgres" else stores.fresh_url(kind)


@contextlib.asynccontextmanager
async def everything(
    url: str, *, empty: bool = True, quota: dict[str, int] | None = None, **more: Any
) -> AsyncIterator[Live]:
    """A server with every route of `callsheet serve`; `quota` are defaults for all tenants."""
    limits = Limits(quota=DEFAULTS._replace(**(quota or {})), **more.pop("limits", {}))
    async with serving(url, routers=ROUTERS, limits=limits, **{"objects_url": "memory:", **more}) as live:
        if empty:
            await stores.empty({url: live.engine.store})
        yield live
