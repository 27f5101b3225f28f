"""The stage `transcode` makes HLS renditions, none larger than the original, and a poster."""

from __future__ import annotations

import asyncio
from typing import Any

from callsheet.catalog.records import VideoFacts
from callsheet.media.errors import NoSuchStream
from callsheet.media.ffmpeg import Ffmpeg
from callsheet.media.hls import INDEX, MIME, make_hls
from callsheet.media.poster import make_poster
from callsheet.media.probe import Caps, probe

from ..attempts import progress_within  # noqa: TID252 - what contracts share
from . import paths
from .parts import StageContext, fetch_original, options_for, remove_others

FETCH_PERCENT, MAKE_PERCENT = 10.0, 85.0  # percent
AT_ONCE = 8  # uploads


async def transcode(stage: StageContext, s3_original_path: str) -> dict[str, Any]:
    """Make and upload the HLS files and the poster; returns the job's result."""
    ctx = stage.ctx
    source = await fetch_original(stage, s3_original_path, share=FETCH_PERCENT)
    how = Ffmpeg.default(start=ctx.children.start, is_stopped=lambda: ctx.cancelled)
    media = await probe(source, start=ctx.children.start, caps=Caps(size_bytes=stage.parts.max_source_bytes))
    if media.video is None:
        raise NoSuchStream("the file has no moving picture, and text is read from pictures")
    hls = await make_hls(
        media, ctx.workspace / "hls", how, on_progress=progress_within(ctx, FETCH_PERCENT, MAKE_PERCENT)
    )
    poster = await make_poster(media, ctx.workspace, how)
    await ctx.progress(MAKE_PERCENT)  # committed: the claim is still ours
    objects, folder = stage.objects, paths.proxies(stage.video_id)
    ready = asyncio.Semaphore(AT_ONCE)

    async def send(name: str) -> None:
        async with ready:
            path = hls.folder / name
            await objects.put_file(f"{folder}/{name}", path, content_type=MIME[path.suffix])

    segments = [name for name in hls.files if not name.endswith(".m3u8")]
    await asyncio.gather(*map(send, segments))
    for name in [name for name in hls.files if name.endswith(".m3u8")]:  # the index is the last
        await send(name)
    await objects.put_file(paths.poster(stage.video_id), poster.path, content_type=MIME[".jpg"])
    await remove_others(objects, folder, {f"{folder}/{name}" for name in hls.files})
    width, height = media.video.shown_size
    facts = VideoFacts(
        s3_proxy_path=f"{folder}/{INDEX}",
        s3_thumb_path=paths.poster(stage.video_id),
        size_bytes=media.size_bytes,
        duration_ms=round(media.duration_s * 1000),
        width=width,
        height=height,
        fps=media.video.fps or None,
    )
    await stage.parts.catalog.note(stage.video_id, stage.writer, facts)
    return {
        "s3_proxy_path": facts.s3_proxy_path,
        "s3_thumb_path": facts.s3_thumb_path,
        "renditions": [{"width": size.width, "height": size.height} for size in hls.renditions],
        "duration_ms": facts.duration_ms,
        "poster_at_ms": round(poster.at_s * 1000),
        **options_for(stage, "target_fps", "dedupe_threshold"),
    }
