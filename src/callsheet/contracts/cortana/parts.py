"""What all stages share: the catalogue, the fenced row of their video, and the download of the original."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import StringConstraints

from callsheet.catalog.protocol import Catalog
from callsheet.catalog.records import SERVICE, Video, Writer
from callsheet.objects import Objects, OwnedObjects
from callsheet.objects.owned import with_folders
from callsheet.worker.context import Context
from callsheet.worker.signals import Fatal

from . import paths

CONTRACT = "cortana"
MAX_SOURCE_BYTES = 100 * 1024**3
VideoId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]


class Parts(NamedTuple):
    """The catalogue of the current event loop, and the settings of the stages."""

    catalog: Catalog
    max_source_bytes: int = MAX_SOURCE_BYTES
    ocr_engine: str = "tesseract"
    clip_days: int = 30
    keep_logs: bool = False


FindsParts = Callable[[], Awaitable[Parts]]


class StageContext(NamedTuple):
    """One attempt's context, video, writer and objects. `objects` covers keys of the requester and of the video."""

    ctx: Context
    parts: Parts
    video: Video
    writer: Writer
    objects: OwnedObjects

    @property
    def video_id(self) -> str:
        """Return the video's id."""
        return self.video.video_id


async def begin(ctx: Context, parts: Parts, video_id: str) -> StageContext:
    """Make this attempt the writer of its video; raises Fatal for a missing video or another owner's video."""
    row = await parts.catalog.video(video_id, SERVICE)
    if row is None or row.owner_id != ctx.job.requester_id:  # another owner's video is reported as missing
        return _stage_context(ctx, parts, None, video_id)
    stage = ctx.job.kind.rpartition(".")[2]
    return _stage_context(ctx, parts, await parts.catalog.begin(video_id, _writer(ctx), stage), video_id)


async def look(ctx: Context, parts: Parts, video_id: str, clip_id: str) -> StageContext:
    """Return the stage of a clip job, which does not write its video. Members of the video's team may request clips."""
    video = await parts.catalog.video(video_id, SERVICE)
    if video is None or video.owner_id != ctx.job.requester_id:
        clip = await parts.catalog.clip(clip_id, SERVICE)
        if clip is None or (clip.video_id, clip.job_id) != (video_id, ctx.job_id):  # /clips checked this requester
            video = None
    return _stage_context(ctx, parts, video, video_id)


def _writer(ctx: Context) -> Writer:
    return Writer(ctx.job_id, ctx.job.claim_version, ctx.job.created_at)


def _stage_context(ctx: Context, parts: Parts, video: Video | None, video_id: str) -> StageContext:
    if video is None:
        raise Fatal(f"there is no video {video_id}; it was deleted, or never added", code="video_not_found")
    objects = with_folders(ctx.objects, paths.folders(video_id), payer=video.owner_id)
    return StageContext(ctx, parts, video, _writer(ctx), objects)


async def fetch_original(stage: StageContext, key: str, *, share: float) -> Path:
    """Download the original into the attempt's own folder; the download is the first `share` percent of the work."""
    if not key.startswith(f"{paths.ORIGINALS}/{stage.video_id}/"):
        raise Fatal(f"s3_original_path is not below {paths.ORIGINALS}/{stage.video_id}/", code="invalid_payload")
    path = stage.ctx.workspace / paths.MASTER

    def tell(received: int, whole: int) -> None:
        _ = stage.ctx.progress(share * received / max(1, whole))

    await stage.objects.get_file(key, path, max_bytes=stage.parts.max_source_bytes, progress=tell)
    return path


def options_for(stage: StageContext, *names: str) -> dict[str, Any]:
    """Return those of the owner's options that the next stage takes; missing options keep the stage's defaults."""
    options: dict[str, Any] = json.loads(stage.video.options)
    return {name: options[name] for name in names if name in options}


async def remove_others(objects: Objects, folder: str, keep: set[str]) -> None:
    """Delete objects in a folder that an earlier run wrote and this run did not."""
    others = [info.key async for info in objects.list(folder) if info.key not in keep]
    for start in range(0, len(others), 1_000):
        await objects.delete(*others[start : start + 1_000])
