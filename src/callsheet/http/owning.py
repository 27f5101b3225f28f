"""A tenant's view of the server's objects, which routes use to check object keys in request bodies."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from callsheet.catalog.records import SERVICE
from callsheet.objects.owned import Holder, OwnedObjects, Source

from .objects import objects_of

if TYPE_CHECKING:
    from callsheet.objects import Objects

    from .site import Site


class SiteOwners:
    """Finds the owners of jobs and videos in the server's store and catalogue."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def of_job(self, job_id: str) -> str | None:
        """Return the requester of a job, or None for an unknown job."""
        (job,) = await self._site.engine.store.get([job_id])
        return None if job is None else job.requester_id

    async def of_video(self, video_id: str) -> str | None:
        """Return the owner of a video, or None for an unknown video or a server without catalogue."""
        video = await self._site.catalog.video(video_id, SERVICE) if self._site.catalog is not None else None
        return None if video is None else video.owner_id


def owned_by(site: Site, requester_id: str) -> OwnedObjects:
    """Return a tenant's objects.

    Key ownership can be checked even if the server has no object storage; reading or writing then raises Problem.
    """

    async def opens() -> Objects:
        return objects_of(site)

    return OwnedObjects(Source(opens, SiteOwners(site), asyncio.get_running_loop()), Holder(requester_id))
