"""What the stages stand on, and what each of them does first: the original, and the video's row behind the fence."""

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
    """The catalogue of the event loop that asks, and what the stages are told."""

    catalog: Catalog
    max_source_bytes: int = MAX_SOURCE_BYTES
    ocr_engine: str = "tesseract"
    clip_days: int = 30
    keep_logs: bool = False


FindsParts = Callable[[], Awaitable[Parts]]


class Bench(NamedTuple):
    """One attempt at its work: who it is, on which video, with what. `objects` are its requester's and the video's."""

    ctx: Context
    parts: Parts
    video: Video
    writer: Writer
    objects: OwnedObjects

    @property
    def video_id(self) -> str:
        """The video's id."""
        return self.video.video_id


async def begin(ctx: Context, parts: Parts, video_id: str) -> Bench:
    """Make this attempt the writer of its video; raises Fatal for what is not there or not ours to change."""
    known = await parts.catalog.video(video_id, SERVICE)
    if known is None or known.owner_id != ctx.job.requester_id:  # a stranger's is as one that never was
        return _bench(ctx, parts, None, video_id)
    stage = ctx.job.kind.rpartition(".")[2]
    return _bench(ctx, parts, await parts.catalog.begin(video_id, _writer(ctx), stage), video_id)


async def look(ctx: Context, parts: Parts, video_id: str, clip_id: str) -> Bench:
    """The same for the job of a clip, which changes nothing of its video. Those of a video's team may ask for one."""
    video = await parts.catalog.video(video_id, SERVICE)
    if video is None or video.owner_id != ctx.job.requester_id:
        clip = await parts.catalog.clip(clip_id, SERVICE)
        if clip is None or (clip.video_id, clip.job_id) != (video_id, ctx.job_id):  # whom /clips has let in
            video = None
    return _bench(ctx, parts, video, video_id)


def _writer(ctx: Context) -> Writer:
    return Writer(ctx.job_id, ctx.job.claim_version, ctx.job.created_at)


def _bench(ctx: Context, parts: Parts, video: Video | None, video_id: str) -> Bench:
    if video is None:
        raise Fatal(f"there is no video {video_id}; it was deleted, or never added", code="video_not_found")
    objects = with_folders(ctx.objects, paths.folders(video_id), payer=video.owner_id)
    return Bench(ctx, parts, video, _writer(ctx), objects)


async def fetch_original(bench: Bench, key: str, *, share: float) -> Path:
    """The original in the attempt's own folder, which is the first `share` percent of the work."""
    if not key.startswith(f"{paths.ORIGINALS}/{bench.video_id}/"):
        raise Fatal(f"s3_original_path is not below {paths.ORIGINALS}/{bench.video_id}/", code="invalid_payload")
    path = bench.ctx.workspace / paths.MASTER

    def tell(done: int, whole: int) -> None:
        _ = bench.ctx.progress(share * done / max(1, whole))

    await bench.objects.get_file(key, path, max_bytes=bench.parts.max_source_bytes, progress=tell)
    return path


def chosen(bench: Bench, *names: str) -> dict[str, Any]:
    """What the owner chose for the next stage; its own defaults hold for the rest."""
    options: dict[str, Any] = json.loads(bench.video.options)
    return {name: options[name] for name in names if name in options}


async def remove_others(objects: Objects, folder: str, keep: set[str]) -> None:
    """Remove what an earlier run left in a folder and this one did not write."""
    others = [info.key async for info in objects.list(folder) if info.key not in keep]
    for start in range(0, len(others), 1_000):
        await objects.delete(*others[start : start + 1_000])
