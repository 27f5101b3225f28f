"""The objects of a server as one tenant may use them: what routes ask when a body names a key."""

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
    """Whose a job or a video is, as a server's own store and catalogue say it."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def of_job(self, job_id: str) -> str | None:
        """The requester of a job."""
        (job,) = await self._site.engine.store.get([job_id])
        return None if job is None else job.requester_id

    async def of_video(self, video_id: str) -> str | None:
        """The owner of a video; None where the server has no catalogue."""
        video = await self._site.catalog.video(video_id, SERVICE) if self._site.catalog is not None else None
        return None if video is None else video.owner_id


def owned_by(site: Site, requester_id: str) -> OwnedObjects:
    """A tenant's objects. Whose a key is can be asked also where the server keeps none; a verb raises Problem there."""

    async def opens() -> Objects:
        return objects_of(site)

    return OwnedObjects(Source(opens, SiteOwners(site), asyncio.get_running_loop()), Holder(requester_id))
