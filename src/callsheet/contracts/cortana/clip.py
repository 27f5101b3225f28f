"""The job `clip_generate` cuts a part of the original, exact to the frame. An existing clip is not cut again."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from callsheet.catalog.records import SERVICE
from callsheet.media.errors import NoSuchStream
from callsheet.media.ffmpeg import Ffmpeg
from callsheet.media.probe import Caps, Media, probe
from callsheet.media.spec import OutputSpec
from callsheet.media.transcode import transcode
from callsheet.worker.signals import Fatal

from . import paths
from .parts import StageContext, fetch_original

FETCH_PERCENT, CUT_PERCENT = 30.0, 90.0  # percent
DAY_MS = 24 * 3600 * 1000
SUFFIX = ".mp4"


class ClipOrder(NamedTuple):
    """The payload of a clip job."""

    clip_id: str
    t_start: int
    t_end: int
    padding_ms: int
    s3_original_path: str


def range_of(order: ClipOrder, duration_ms: int) -> tuple[int, int]:
    """Return start and end of the clip with padding, limited to the video; raises Fatal for an empty range."""
    if order.t_end <= order.t_start:
        raise Fatal("t_end must be after t_start", code="invalid_payload")
    if duration_ms and order.t_start >= duration_ms:
        raise Fatal(f"t_start is after the end of the video, which lasts {duration_ms} ms", code="invalid_range")
    end = order.t_end + order.padding_ms
    return max(0, order.t_start - order.padding_ms), min(end, duration_ms) if duration_ms else end


async def generate(stage: StageContext, order: ClipOrder) -> dict[str, Any]:
    """Cut the clip and upload it, unless the clip's object exists already."""
    ctx, objects = stage.ctx, stage.objects
    key = paths.clip(stage.video_id, order.clip_id)
    start, end = range_of(order, stage.video.duration_ms or 0)
    if await objects.exists(key):
        return await _record(stage, order, await _before(stage, order) or (start, end), is_skipped=True)
    source = await fetch_original(stage, order.s3_original_path, share=FETCH_PERCENT)
    media = await probe(source, start=ctx.children.start, caps=Caps(size_bytes=stage.parts.max_source_bytes))
    if media.video is None:
        raise NoSuchStream("the file has no moving picture")
    start, end = range_of(order, round(media.duration_s * 1000))
    how = Ffmpeg.default(start=ctx.children.start, is_stopped=lambda: ctx.cancelled)
    clip = await transcode(media, _spec(order, media, start, end), ctx.workspace, how)
    await ctx.progress(CUT_PERCENT)  # committed: the claim is still ours
    await objects.put_file(key, clip.path, content_type=clip.mime)
    return await _record(stage, order, (start, end), is_skipped=False)


async def _before(stage: StageContext, order: ClipOrder) -> tuple[int, int] | None:
    """Return start and end of the existing clip, None if the catalogue does not have them."""
    clip = await stage.parts.catalog.clip(order.clip_id, SERVICE)
    if clip is None or clip.actual_start is None or clip.actual_end is None:
        return None
    return clip.actual_start, clip.actual_end


def _spec(order: ClipOrder, media: Media, start: int, end: int) -> OutputSpec:
    end_s = None if end >= round(media.duration_s * 1000) else end / 1000
    return OutputSpec(f"{order.clip_id}{SUFFIX}", "mp4", start_s=start / 1000, end_s=end_s)


async def _record(
    stage: StageContext, order: ClipOrder, actual: tuple[int, int], *, is_skipped: bool
) -> dict[str, Any]:
    expires_at = round(time.time() * 1000) + stage.parts.clip_days * DAY_MS
    await stage.parts.catalog.note_clip(order.clip_id, actual, expires_at)
    return {
        "clip_id": order.clip_id,
        "s3_path": paths.clip(stage.video_id, order.clip_id),
        "t_start": actual[0],
        "t_end": actual[1],
        "skipped": is_skipped,
    }
