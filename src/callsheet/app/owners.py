"""Owners of jobs and videos, read from an app's store and catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callsheet.catalog import catalog_url
from callsheet.catalog.records import SERVICE

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
