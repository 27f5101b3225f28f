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

from ..attempts import telling  # noqa: TID252 - what contracts share
from . import paths
from .parts import Bench, chosen, fetch_original, remove_others

FETCHED, MADE = 10.0, 85.0  # percent
AT_ONCE = 8  # uploads


async def transcode(bench: Bench, s3_original_path: str) -> dict[str, Any]:
    """Make and upload the HLS files and the poster; returns the job's result."""
    ctx = bench.ctx
    source = await fetch_original(bench, s3_original_path, share=FETCHED)
    how = Ffmpeg.default(start=ctx.children.start, is_stopped=lambda: ctx.cancelled)
    media = await probe(source, start=ctx.children.start, caps=Caps(size_bytes=bench.parts.max_source_bytes))
    if media.video is None:
        raise NoSuchStream("the file has no moving picture, and text is read from pictures")
    made = await make_hls(media, ctx.workspace / "hls", how, on_progress=telling(ctx, FETCHED, MADE))
    poster = await make_poster(media, ctx.workspace, how)
    await ctx.progress(MADE)  # committed: the claim is still ours
    objects, folder = bench.objects, paths.proxies(bench.video_id)
    ready = asyncio.Semaphore(AT_ONCE)

    async def send(name: str) -> None:
        async with ready:
            path = made.folder / name
            await objects.put_file(f"{folder}/{name}", path, content_type=MIME[path.suffix])

    segments = [name for name in made.files if not name.endswith(".m3u8")]
    await asyncio.gather(*map(send, segments))
    for name in [name for name in made.files if name.endswith(".m3u8")]:  # the index is the last
        await send(name)
    await objects.put_file(paths.poster(bench.video_id), poster.path, content_type=MIME[".jpg"])
    await remove_others(objects, folder, {f"{folder}/{name}" for name in made.files})
    width, height = media.video.shown_size
    facts = VideoFacts(
        s3_proxy_path=f"{folder}/{INDEX}",
        s3_thumb_path=paths.poster(bench.video_id),
        size_bytes=media.size_bytes,
        duration_ms=round(media.duration_s * 1000),
        width=width,
        height=height,
        fps=media.video.fps or None,
    )
    await bench.parts.catalog.note(bench.video_id, bench.writer, facts)
    return {
        "s3_proxy_path": facts.s3_proxy_path,
        "s3_thumb_path": facts.s3_thumb_path,
        "renditions": [{"width": size.width, "height": size.height} for size in made.renditions],
        "duration_ms": facts.duration_ms,
        "poster_at_ms": round(poster.at_s * 1000),
        **chosen(bench, "target_fps", "dedupe_threshold"),
    }
