"""Whose a job or a video is, as an app's own store and catalogue say it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callsheet.catalog import catalog_url
from callsheet.catalog.records import SERVICE

if TYPE_CHECKING:
    from .application import Callsheet


class AppOwners:
    """Asks the store and the catalogue of the loop that asks. What they do not know belongs to nobody."""

    def __init__(self, app: Callsheet) -> None:
        self._app = app

    async def of_job(self, job_id: str) -> str | None:
        """The requester of a job."""
        (job,) = await (await self._app.engine()).store.get([job_id])
        return None if job is None else job.requester_id

    async def of_video(self, video_id: str) -> str | None:
        """The owner of a video; None where the app has no catalogue."""
        if catalog_url(self._app.catalog_url, self._app.database_url) is None:
            return None
        video = await (await self._app.catalog()).video(video_id, SERVICE)
        return None if video is None else video.owner_id
