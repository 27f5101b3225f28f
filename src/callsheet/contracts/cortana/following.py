"""Follow a video's progress, stage by stage, until the video is ready or has failed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import NamedTuple

from callsheet.catalog.protocol import Catalog
from callsheet.catalog.records import SERVICE, Video, VideoStatus
from callsheet.engine import Engine

from .jobs import PIPELINE

LOOK_S = 0.25
OVER = (VideoStatus.READY, VideoStatus.FAILED)


class Far(NamedTuple):
    """A video and the percentage of each stage that has begun."""

    video: Video
    stages: dict[str, float]

    @property
    def is_over(self) -> bool:
        """Return True if the video is ready or has failed."""
        return self.video.status in OVER


async def follow(engine: Engine, catalog: Catalog, video_id: str, look_s: float = LOOK_S) -> AsyncIterator[Far]:
    """Yield the video's progress every `look_s` seconds until the video is ready, failed or deleted."""
    while (progress := await far(engine, catalog, video_id)) is not None:
        yield progress
        if progress.is_over:
            return
        await asyncio.sleep(look_s)


async def far(engine: Engine, catalog: Catalog, video_id: str) -> Far | None:
    """Return the video's present progress, None for an unknown video."""
    video = await catalog.video(video_id, SERVICE)
    if video is None:
        return None
    jobs: dict[str, str] = json.loads(video.jobs)
    stages = [stage for stage in PIPELINE if stage in jobs]
    jobs_by_id = {
        job.job_id: job for job in await engine.store.get([jobs[stage] for stage in stages]) if job is not None
    }
    return Far(
        video, {stage: jobs_by_id[jobs[stage]].progress if jobs[stage] in jobs_by_id else 100.0 for stage in stages}
    )
