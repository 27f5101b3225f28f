"""Limits of a task's objects: their owners, and the storage quotas of their tenants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callsheet.catalog import catalog_url
from callsheet.catalog.records import SERVICE
from callsheet.engine.quotas import Quotas
from callsheet.engine.stored import mark_job

from .per_loop import PerLoop

if TYPE_CHECKING:
    from .application import Callsheet


class AppOwners:
    """Reads owners from the app's store and catalogue in the caller's event loop; unknown ids have no owner."""

    def __init__(self, app: Callsheet) -> None:
        self._app = app

    async def of_job(self, job_id: str) -> str | None:
        """Return a job's requester id; None for an unknown job."""
        (job,) = await (await self._app.engine()).store.get([job_id])
        return None if job is None else job.requester_id

    async def of_video(self, video_id: str) -> str | None:
        """Return a video's owner id; None for an unknown video or an app without a catalogue."""
        if catalog_url(self._app.catalog_url, self._app.database_url) is None:
            return None
        video = await (await self._app.catalog()).video(video_id, SERVICE)
        return None if video is None else video.owner_id


MOST_MARKED = 1_000


class AppCounter:
    """Counts bytes in the app's store. Quotas come from a server; without a server nothing is refused."""

    def __init__(self, app: Callsheet) -> None:
        self._app = app
        self._quotas = PerLoop(self._open)
        self._marked_jobs: dict[str, None] = {}

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

        owner = named_by(key)
        if owner.kind == "job" and owner.id not in self._marked_jobs:
            await mark_job((await self._app.engine()).store, owner.id, requester_id)
            self._marked_jobs[owner.id] = None
            while len(self._marked_jobs) > MOST_MARKED:
                self._marked_jobs.pop(next(iter(self._marked_jobs)))
