"""The stage `sample` uploads key frames of the original while the rest of the video is still being decoded."""

from __future__ import annotations

import asyncio
import json
from types import TracebackType
from typing import Any, Self

from callsheet.catalog.records import VideoFacts
from callsheet.kernel.wire import encode
from callsheet.media.sampling.records import Kept, Sampled, Sampling
from callsheet.media.sampling.sample import CAPS, Means
from callsheet.media.sampling.sample import sample as frames_of

from ..attempts import progress_within  # noqa: TID252 - what contracts share
from . import paths
from .parts import StageContext, fetch_original, options_for, remove_others

FETCH_PERCENT, SAMPLE_PERCENT = 15.0, 95.0  # percent
AT_ONCE = 8  # uploads
MOST_PATHS = 2_000  # paths in a payload of at most 200 KB; a longer list becomes the manifest's path
JPEG = "image/jpeg"


async def sample(
    stage: StageContext, s3_original_path: str, target_fps: float, dedupe_threshold: float
) -> dict[str, Any]:
    """Sample and upload the frames. The manifest is written last, as proof that all frames are stored."""
    ctx, objects = stage.ctx, stage.objects
    source = await fetch_original(stage, s3_original_path, share=FETCH_PERCENT)
    folder = ctx.workspace / "frames"
    folder.mkdir(mode=0o700)
    means = Means(
        ctx.children.start, lambda: ctx.cancelled, caps=CAPS._replace(size_bytes=stage.parts.max_source_bytes)
    )
    options = Sampling(target_fps, dedupe_threshold)
    async with _Uploads(stage) as uploads:
        sampled = await frames_of(
            source,
            folder,
            uploads.send,
            options,
            means=means,
            on_progress=progress_within(ctx, FETCH_PERCENT, SAMPLE_PERCENT),
        )
    await ctx.progress(SAMPLE_PERCENT)  # committed: the claim is still ours
    kept = uploads.frames
    manifest_body = {"frames": [_manifest_entry(frame) for frame in kept], **_coverage(sampled)}
    manifest = paths.manifest(stage.video_id)
    await objects.put(manifest, json.dumps(manifest_body).encode(), content_type="application/json")
    names = [paths.frame(stage.video_id, frame.timestamp_ms) for frame in kept]
    await remove_others(objects, paths.frames(stage.video_id), {manifest, *names})
    facts = VideoFacts(coverage=encode(_coverage(sampled)), duration_ms=sampled.duration_ms)
    await stage.parts.catalog.note(stage.video_id, stage.writer, facts)
    frame_paths = names if len(names) <= MOST_PATHS else [manifest]
    return {"frame_paths": frame_paths, **_coverage(sampled), **options_for(stage, "languages", "min_confidence")}


class _Uploads:
    """Uploads up to AT_ONCE frames in parallel; a slow storage slows the decoder down."""

    def __init__(self, stage: StageContext) -> None:
        self._bench = stage
        self._room = asyncio.Semaphore(AT_ONCE)
        self.frames: list[Kept] = []

    async def __aenter__(self) -> Self:
        self._group = asyncio.TaskGroup()
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._group.__aexit__(kind, error, trace)
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None

    async def send(self, frame: Kept) -> None:
        """Upload one frame in the background, and delete its local file afterwards."""
        self.frames.append(frame)
        await self._room.acquire()
        self._group.create_task(self._send(frame))

    async def _send(self, frame: Kept) -> None:
        try:
            key = paths.frame(self._bench.video_id, frame.timestamp_ms)
            await self._bench.objects.put_file(key, frame.path, content_type=JPEG)
            frame.path.unlink()
        finally:
            self._room.release()


def _manifest_entry(frame: Kept) -> dict[str, Any]:
    return {name: value for name, value in frame._asdict().items() if name != "path"}


def _coverage(sampled: Sampled) -> dict[str, Any]:
    options = sampled.options
    return {
        "sampled": sampled.sampled,
        "kept": sampled.kept,
        "period_ms": sampled.period_ms,
        "gaps": [list(gap) for gap in sampled.gaps],
        "target_fps": options.target_fps,
        "dedupe_threshold": options.dedupe_threshold,
        "guard": options.guard,
    }
