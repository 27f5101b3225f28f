"""The scanner enters originals that were put into the bucket without the API, and starts their pipelines once.

With several scanners, only one enters a video, and the pipeline's start has an idempotency key. If a scanner dies
between the two, the next scan starts the pipeline.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import NamedTuple

from callsheet.catalog.protocol import Catalog
from callsheet.catalog.records import SERVICE, Video, VideoStatus
from callsheet.engine import Engine
from callsheet.kernel.job import Idempotency
from callsheet.kernel.new_jobs import IS_UUID
from callsheet.objects import ObjectInfo, Objects

from . import paths
from .jobs import start_job

PAGE = 500
PATIENCE_MS = 60_000  # time for the scanner or client that entered a video to start its pipeline


class ScanResult(NamedTuple):
    """One scan's result: originals seen, video ids started, and `odd` keys in the originals' folder."""

    seen: int
    started_ids: tuple[str, ...]
    odd: tuple[str, ...]


class Owner(NamedTuple):
    """The owner and team of the videos that a scan enters."""

    owner_id: str = ""
    team_id: str | None = None


async def scan(engine: Engine, catalog: Catalog, objects: Objects, owner: Owner = Owner()) -> ScanResult:  # noqa: B008
    """Scan all originals once."""
    seen, started_ids, odd = 0, [], []
    async for page in _pages(objects.list(paths.ORIGINALS)):
        originals = {}
        for info in page:
            video_id = video_of(info.key)
            if video_id is None:
                odd.append(info.key)
            else:
                originals[video_id] = info
        seen += len(originals)
        known_ids = await catalog.known(list(originals))
        for video_id, info in originals.items():
            if await _start(engine, catalog, _new(video_id, info, owner), info, is_known=video_id in known_ids):
                started_ids.append(video_id)
    return ScanResult(seen, tuple(started_ids), tuple(odd[:100]))


def video_of(key: str) -> str | None:
    """Return the video id in an original's key, None for any other key."""
    parts = key.split("/")
    fits = len(parts) == 4 and "/".join(parts[:2]) == paths.ORIGINALS and parts[3] == paths.MASTER  # noqa: PLR2004
    return parts[2] if fits and IS_UUID(parts[2]) else None


async def _start(engine: Engine, catalog: Catalog, video: Video, info: ObjectInfo, *, is_known: bool) -> bool:
    key = f"scan:{video.video_id}"
    if is_known or not await catalog.add_video(video):
        existing = await catalog.video(video.video_id, SERVICE)
        if existing is None or not (_is_left(existing) or _is_replaced(existing, info)):
            return False
        if existing.status is not VideoStatus.UPLOADING:
            key = f"{key}:{info.etag or info.modified_ms}:{info.size_bytes}"
        video = existing._replace(size_bytes=info.size_bytes)
    new = start_job(video.video_id, video.owner_id)
    (answer,) = await engine.enqueue([new._replace(idempotency=Idempotency(key, video.video_id))])
    if answer.created or video.status is VideoStatus.UPLOADING:
        await catalog.queue(video.video_id, video.size_bytes)
    return answer.created


def _is_left(video: Video) -> bool:
    """Return True if an entered video is still not started after PATIENCE_MS."""
    return video.status is VideoStatus.UPLOADING and round(time.time() * 1000) - video.updated_at >= PATIENCE_MS


def _is_replaced(video: Video, info: ObjectInfo) -> bool:
    """Return True if the original changed since the pipeline ran, by the rest of an upload or a new upload."""
    if video.status not in (VideoStatus.FAILED, VideoStatus.READY):
        return False
    is_newer = video.status is VideoStatus.FAILED and info.modified_ms > video.updated_at
    return is_newer or (video.size_bytes is not None and video.size_bytes != info.size_bytes)


def _new(video_id: str, info: ObjectInfo, owner: Owner) -> Video:
    status = VideoStatus.UPLOADING
    return Video(video_id, owner.owner_id, owner.team_id, video_id, status, info.key, size_bytes=info.size_bytes)


async def _pages(items: AsyncIterator[ObjectInfo]) -> AsyncIterator[list[ObjectInfo]]:
    page: list[ObjectInfo] = []
    async for item in items:
        page.append(item)
        if len(page) == PAGE:
            yield page
            page = []
    if page:
        yield page
