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
from .parts import Bench, fetch_original

FETCHED, CUT = 30.0, 90.0  # percent
DAY_MS = 24 * 3600 * 1000
SUFFIX = ".mp4"


class Wanted(NamedTuple):
    """The payload of a clip job."""

    clip_id: str
    t_start: int
    t_end: int
    padding_ms: int
    s3_original_path: str


def range_of(wanted: Wanted, duration_ms: int) -> tuple[int, int]:
    """Return start and end of the clip with padding, limited to the video; raises Fatal for an empty range."""
    if wanted.t_end <= wanted.t_start:
        raise Fatal("t_end must be after t_start", code="invalid_payload")
    if duration_ms and wanted.t_start >= duration_ms:
        raise Fatal(f"t_start is after the end of the video, which lasts {duration_ms} ms", code="invalid_range")
    end = wanted.t_end + wanted.padding_ms
    return max(0, wanted.t_start - wanted.padding_ms), min(end, duration_ms) if duration_ms else end


async def generate(bench: Bench, wanted: Wanted) -> dict[str, Any]:
    """Cut the clip and upload it, unless the clip's object exists already."""
    ctx, objects = bench.ctx, bench.objects
    key = paths.clip(bench.video_id, wanted.clip_id)
    start, end = range_of(wanted, bench.video.duration_ms or 0)
    if await objects.exists(key):
        return await _noted(bench, wanted, await _before(bench, wanted) or (start, end), skipped=True)
    source = await fetch_original(bench, wanted.s3_original_path, share=FETCHED)
    media = await probe(source, start=ctx.children.start, caps=Caps(size_bytes=bench.parts.max_source_bytes))
    if media.video is None:
        raise NoSuchStream("the file has no moving picture")
    start, end = range_of(wanted, round(media.duration_s * 1000))
    how = Ffmpeg.default(start=ctx.children.start, is_stopped=lambda: ctx.cancelled)
    made = await transcode(media, _spec(wanted, media, start, end), ctx.workspace, how)
    await ctx.progress(CUT)  # committed: the claim is still ours
    await objects.put_file(key, made.path, content_type=made.mime)
    return await _noted(bench, wanted, (start, end), skipped=False)


async def _before(bench: Bench, wanted: Wanted) -> tuple[int, int] | None:
    """Return start and end of the existing clip, None if the catalogue does not have them."""
    clip = await bench.parts.catalog.clip(wanted.clip_id, SERVICE)
    if clip is None or clip.actual_start is None or clip.actual_end is None:
        return None
    return clip.actual_start, clip.actual_end


def _spec(wanted: Wanted, media: Media, start: int, end: int) -> OutputSpec:
    end_s = None if end >= round(media.duration_s * 1000) else end / 1000
    return OutputSpec(f"{wanted.clip_id}{SUFFIX}", "mp4", start_s=start / 1000, end_s=end_s)


async def _noted(bench: Bench, wanted: Wanted, actual: tuple[int, int], *, skipped: bool) -> dict[str, Any]:
    expires_at = round(time.time() * 1000) + bench.parts.clip_days * DAY_MS
    await bench.parts.catalog.note_clip(wanted.clip_id, actual, expires_at)
    return {
        "clip_id": wanted.clip_id,
        "s3_path": paths.clip(bench.video_id, wanted.clip_id),
        "t_start": actual[0],
        "t_end": actual[1],
        "skipped": skipped,
    }
