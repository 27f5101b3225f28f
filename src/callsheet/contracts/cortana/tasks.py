"""The contract's five tasks. The pipeline runs its stages in the order of this file."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Annotated, Any

from pydantic import Field

from callsheet.kernel.errors import StaleClaim
from callsheet.kernel.wire import encode
from callsheet.worker.context import Context
from callsheet.worker.pipeline import Pipeline, TakesTasks
from callsheet.worker.signals import Fatal, Retry

from ..attempts import errors_as_outcomes  # noqa: TID252 - what contracts share
from . import clip as clips
from .attempt_log import attempt_log
from .jobs import CLIP, NAME
from .ocr import ocr as read
from .outcomes import outcome_of, type_of
from .parts import CONTRACT, FindsParts, StageContext, VideoId, begin, look
from .sample import sample as take
from .segment_index import segment_index as index
from .transcode import transcode as make

KEY = "video_id"
DURATION_MS = 10**10
Milliseconds = Annotated[int, Field(ge=0, le=DURATION_MS)]
ObjectKey = Annotated[str, Field(min_length=1, max_length=1024)]
Languages = Annotated[list[Annotated[str, Field(pattern=r"^[A-Za-z_]{2,20}$")]], Field(min_length=1, max_length=10)]


def add_tasks(app: TakesTasks, parts: FindsParts) -> Pipeline:
    """Declare the pipeline and `clip_generate` on an app; each attempt calls `parts` for its catalogue and settings."""
    videos = Pipeline(app, NAME, key=KEY, contract=CONTRACT, retry=CONTRACT, timeout="12h")

    @videos.stage
    async def transcode(ctx: Context, video_id: VideoId, s3_original_path: ObjectKey) -> dict[str, Any]:
        async with _at_work(ctx, parts, video_id) as stage:
            return await make(stage, s3_original_path)

    @videos.stage
    async def sample(
        ctx: Context,
        video_id: VideoId,
        s3_original_path: ObjectKey,
        target_fps: Annotated[int | float, Field(gt=0, le=60)] = 10,
        dedupe_threshold: Annotated[float, Field(ge=0.5, le=1)] = 0.95,
    ) -> dict[str, Any]:
        async with _at_work(ctx, parts, video_id) as stage:
            return await take(stage, s3_original_path, target_fps, dedupe_threshold)

    @videos.stage
    async def ocr(
        ctx: Context,
        video_id: VideoId,
        frame_paths: Annotated[list[ObjectKey], Field(min_length=1)],
        languages: Languages = ["eng"],  # noqa: B006 - never changed
        min_confidence: Annotated[float, Field(ge=0, le=1)] = 0.6,
    ) -> dict[str, Any]:
        async with _at_work(ctx, parts, video_id) as stage:
            return await read(stage, frame_paths, tuple(languages), min_confidence)

    @videos.stage
    async def segment_index(ctx: Context, video_id: VideoId) -> dict[str, Any]:
        async with _at_work(ctx, parts, video_id) as stage:
            return await index(stage)

    async def clip_generate(  # noqa: PLR0913, PLR0917 - the payload, key by key
        ctx: Context,
        video_id: VideoId,
        clip_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$")],
        t_start: Milliseconds,
        t_end: Milliseconds,
        s3_original_path: ObjectKey,
        padding_ms: Annotated[int, Field(ge=0, le=600_000)] = 2000,
    ) -> dict[str, Any]:
        async with attempt_log(ctx, parts, video_id):
            with errors_as_outcomes(ctx, outcome_of):
                stage = await look(ctx, await parts(), video_id, clip_id)
                order = clips.ClipOrder(clip_id, t_start, t_end, padding_ms, s3_original_path)
                return await clips.generate(stage, order)

    app.task(name=f"{NAME}.{CLIP}", retry=CONTRACT, timeout="2h", contract=CONTRACT)(clip_generate)
    return videos


@contextlib.asynccontextmanager
async def _at_work(ctx: Context, parts: FindsParts, video_id: str) -> AsyncIterator[StageContext]:
    """Run one attempt of a stage as its video's writer, with log lines for start and end."""
    async with attempt_log(ctx, parts, video_id), _writing(ctx, parts, video_id) as stage:
        yield stage


@contextlib.asynccontextmanager
async def _writing(ctx: Context, parts: FindsParts, video_id: str) -> AsyncIterator[StageContext]:
    """Make the attempt the writer of its video. If the last attempt fails, the video becomes `failed`."""
    stage: StageContext | None = None
    try:
        with errors_as_outcomes(ctx, outcome_of):
            stage = await begin(ctx, await parts(), video_id)
            yield stage
    except StaleClaim as error:  # the claim of the video or of the job is lost
        raise Fatal(f"a newer job has this video: {error}", code="superseded") from error
    except (Fatal, Retry) as error:
        is_last = isinstance(error, Fatal) or ctx.attempt >= ctx.job.max_attempts
        if stage is not None and is_last:
            about = {"type": type_of(error.code), "message": str(error), "stage": ctx.job.kind, "job_id": ctx.job_id}
            await stage.parts.catalog.fail(video_id, stage.writer, encode(about))
        raise
