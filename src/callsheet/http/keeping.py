"""Background chores for stored files: clean up ended attempts and uploads, and recount the bytes that tenants store."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Self

from callsheet.kernel.errors import CallsheetError

from . import attempt_files, uploads
from .owning import SiteOwners
from .recount import Recount

if TYPE_CHECKING:
    from types import TracebackType

    from callsheet.objects import Objects

    from .site import Site

log = logging.getLogger("callsheet.http")
PERIOD_S = 30.0
UPLOADS_EACH = 20  # rounds between sweeps of uploads, because a sweep reads a week of uploads


class FileKeeping:
    """Runs the chores of stored files periodically. Several processes may run them concurrently."""

    def __init__(self, site: Site, objects: Objects) -> None:
        self._site, self._objects = site, objects
        self._recount = Recount(site.quotas, site.engine.store, objects, SiteOwners(site))
        self._rounds = 0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._for_ever())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def once(self, now: int | None = None) -> None:
        """Run all chores once; long chores do a bounded part of their work."""
        store, quotas = self._site.engine.store, self._site.quotas
        await attempt_files.sweep(quotas, store, self._objects)
        self._rounds += 1
        if self._rounds % UPLOADS_EACH == 1:
            await uploads.sweep(store, self._objects, await store.now() if now is None else now)
        await self._recount.step(now)

    async def _for_ever(self) -> None:
        while True:
            await asyncio.sleep(PERIOD_S * random.uniform(0.5, 1.5))  # noqa: S311 - jitter
            try:
                await self.once()
            except CallsheetError as error:
                log.warning("the chores of stored files failed, and are tried again: %s", error)
            except Exception:
                log.exception("the chores of stored files broke; they are tried again")
