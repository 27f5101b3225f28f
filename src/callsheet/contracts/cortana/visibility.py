"""Resolve the caller of a video route and check access. A video the caller may not see is reported as unknown."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path

from callsheet.catalog.protocol import Catalog
from callsheet.catalog.records import Reader, Video
from callsheet.http.auth import requires
from callsheet.http.keys import Principal
from callsheet.http.problems import Problem
from callsheet.http.state import ServerState
from callsheet.kernel.new_jobs import IS_UUID

ALWAYS = ("unauthorized", "forbidden", "too_many_requests", "store_unavailable", "catalog_off")
BODY = ("validation_failed", "unsupported_media_type", "body_too_large")
MayRead = Annotated[Principal, Depends(requires("jobs:read"))]
MayWrite = Annotated[Principal, Depends(requires("jobs:write"))]
VideoId = Annotated[str, Path(description="The video's id.", examples=["0199f0c2-7f7a-7d51-b3cd-0d52b5f0f5b1"])]


def reader_of(who: Principal) -> Reader:
    """Return what a principal may see: its own videos, its teams' videos, or every video for an administrator."""
    return Reader(who.requester_id, who.teams, who.admin)


def catalog_of(state: ServerState) -> Catalog:
    """Return the site's catalogue; raises Problem `catalog_off` if the server has none."""
    if state.catalog is None:
        raise Problem("catalog_off", "this server keeps no videos; start it with --catalog-url")
    return state.catalog


async def video_of(state: ServerState, video_id: str, who: Principal) -> Video:
    """Return a video that the caller may see; raises Problem `video_not_found` for a missing or foreign video."""
    video = await catalog_of(state).video(video_id, reader_of(who)) if IS_UUID(video_id) else None
    if video is None:
        raise Problem("video_not_found", "no such video of yours")
    return video


def check_change(video: Video, who: Principal) -> None:
    """Raise Problem unless the caller owns the video or is an administrator; team members may only view and search."""
    if not who.admin and who.requester_id != video.owner_id:
        raise Problem("forbidden", "only its owner may change a video")
