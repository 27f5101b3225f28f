"""New jobs of the contract, and the progress of a video's jobs, for callers that do not import the stages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple

from callsheet.catalog.protocol import Catalog
from callsheet.catalog.records import SERVICE, Video, VideoStatus
from callsheet.engine import Engine
from callsheet.engine.ids import new_id
from callsheet.kernel.job import NewJob
from callsheet.kernel.wire import encode

from . import paths
from .parts import CONTRACT

NAME = "video"
PIPELINE = ("transcode", "sample", "ocr", "segment_index")
CLIP = "clip_generate"
PADDING_MS = 2000


def start_job(video_id: str, owner_id: str, correlation_id: str = "") -> NewJob:
    """Return the first job of the pipeline. Enqueuing it again while it is queued or running returns the same job."""
    payload = {"video_id": video_id, "s3_original_path": paths.original(video_id)}
    return stage_job("transcode", video_id, owner_id, payload, correlation_id)


def stage_job(
    stage: str, video_id: str, owner_id: str, payload: Mapping[str, object], correlation_id: str = ""
) -> NewJob:
    """Return the job of one stage; the pipeline continues with the later stages."""
    return NewJob(
        new_id(),
        f"{NAME}.{stage}",
        encode(payload),
        requester_id=owner_id,
        contract=CONTRACT,
        retry=CONTRACT,
        unique_key=f"{NAME}:{video_id}:{stage}",
        correlation_id=correlation_id or video_id,
    )


def clip_job(video_id: str, clip_id: str, span: tuple[int, int], padding_ms: int, owner_id: str) -> NewJob:
    """Return the job of a clip. Several clips of one video may be cut in parallel."""
    payload = {
        "video_id": video_id,
        "clip_id": clip_id,
        "t_start": span[0],
        "t_end": span[1],
        "padding_ms": padding_ms,
        "s3_original_path": paths.original(video_id),
    }
    return NewJob(
        new_id(),
        f"{NAME}.{CLIP}",
        encode(payload),
        requester_id=owner_id,
        contract=CONTRACT,
        retry=CONTRACT,
        correlation_id=video_id,
    )


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
