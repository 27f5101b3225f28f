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

from ..attempts import telling  # noqa: TID252 - what contracts share
from . import paths
from .parts import Bench, chosen, fetch_original, remove_others

FETCHED, SAMPLED = 15.0, 95.0  # percent
AT_ONCE = 8  # uploads
MOST_PATHS = 2_000  # paths in a payload of at most 200 KB; a longer list becomes the manifest's path
JPEG = "image/jpeg"


async def sample(bench: Bench, s3_original_path: str, target_fps: float, dedupe_threshold: float) -> dict[str, Any]:
    """Sample and upload the frames. The manifest is written last, as proof that all frames are stored."""
    ctx, objects = bench.ctx, bench.objects
    source = await fetch_original(bench, s3_original_path, share=FETCHED)
    folder = ctx.workspace / "frames"
    folder.mkdir(mode=0o700)
    means = Means(
        ctx.children.start, lambda: ctx.cancelled, caps=CAPS._replace(size_bytes=bench.parts.max_source_bytes)
    )
    options = Sampling(target_fps, dedupe_threshold)
    async with _Uploads(bench) as uploads:
        done = await frames_of(
            source, folder, uploads.send, options, means=means, on_progress=telling(ctx, FETCHED, SAMPLED)
        )
    await ctx.progress(SAMPLED)  # committed: the claim is still ours
    kept = uploads.kept
    told = {"frames": [_told(frame) for frame in kept], **_coverage(done)}
    manifest = paths.manifest(bench.video_id)
    await objects.put(manifest, json.dumps(told).encode(), content_type="application/json")
    names = [paths.frame(bench.video_id, frame.timestamp_ms) for frame in kept]
    await remove_others(objects, paths.frames(bench.video_id), {manifest, *names})
    facts = VideoFacts(coverage=encode(_coverage(done)), duration_ms=done.duration_ms)
    await bench.parts.catalog.note(bench.video_id, bench.writer, facts)
    listed = names if len(names) <= MOST_PATHS else [manifest]
    return {"frame_paths": listed, **_coverage(done), **chosen(bench, "languages", "min_confidence")}


class _Uploads:
    """Uploads up to AT_ONCE frames in parallel; a slow storage slows the decoder down."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._room = asyncio.Semaphore(AT_ONCE)
        self.kept: list[Kept] = []

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
        self.kept.append(frame)
        await self._room.acquire()
        self._group.create_task(self._send(frame))

    async def _send(self, frame: Kept) -> None:
        try:
            key = paths.frame(self._bench.video_id, frame.timestamp_ms)
            await self._bench.objects.put_file(key, frame.path, content_type=JPEG)
            frame.path.unlink()
        finally:
            self._room.release()


def _told(frame: Kept) -> dict[str, Any]:
    return {name: value for name, value in frame._asdict().items() if name != "path"}


def _coverage(done: Sampled) -> dict[str, Any]:
    options = done.options
    return {
        "sampled": done.sampled,
        "kept": done.kept,
        "period_ms": done.period_ms,
        "gaps": [list(gap) for gap in done.gaps],
        "target_fps": options.target_fps,
        "dedupe_threshold": options.dedupe_threshold,
        "guard": options.guard,
    }
