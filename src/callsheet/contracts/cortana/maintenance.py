"""Periodic maintenance: removes expired clips, and fails videos whose job ended without updating the catalogue."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import time
from types import TracebackType
from typing import Self

from callsheet.catalog.protocol import Catalog
from callsheet.catalog.records import SERVICE, Clip, Video, VideoPage, VideoStatus, Writer
from callsheet.engine import Engine
from callsheet.engine.stored import StoredBytes
from callsheet.kernel.errors import CallsheetError, StaleClaim
from callsheet.kernel.job import Job, Status
from callsheet.kernel.wire import encode
from callsheet.objects import Objects
from callsheet.objects.counted import sizes_of
from callsheet.objects.folders import parts_of

from .outcomes import type_of

log = logging.getLogger("callsheet.video")
PERIOD_S = 60.0
AT_ONCE = 200
ENDED_BADLY = (Status.FAILED, Status.DEAD_LETTER, Status.CANCELED)


class Keeping:
    """Runs the maintenance about once a minute. Several processes may run it concurrently."""

    def __init__(self, engine: Engine, catalog: Catalog, objects: Objects | None) -> None:
        self._engine, self._catalog, self._objects = engine, catalog, objects
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._for_ever())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def once(self, now_ms: int | None = None) -> tuple[int, int]:
        """Run all maintenance; returns the number of removed clips and the number of videos newly failed."""
        return await self.remove_clips(now_ms), await self.fail_lost()

    async def remove_clips(self, now_ms: int | None = None) -> int:
        """Delete expired clips, files before rows: after a crash the rows remain, and the next run removes them."""
        now_ms, count = round(time.time() * 1000) if now_ms is None else now_ms, 0
        while self._objects is not None and (some := await self._catalog.expired_clips(now_ms, AT_ONCE)):
            sizes = await sizes_of(self._objects, [clip.s3_path for clip in some])
            await self._objects.delete(*[clip.s3_path for clip in some])
            deleted_ids = frozenset(await self._catalog.delete_clips([clip.clip_id for clip in some]))
            await self._give_back([clip for clip in some if clip.clip_id in deleted_ids], sizes)
            count += len(some)
        return count

    async def _give_back(self, clips: list[Clip], sizes: dict[str, int]) -> None:
        """Subtract the files of removed clips from their owners' stored bytes."""
        counts = StoredBytes(self._engine.store)
        for owner_id in {clip.owner_id for clip in clips}:
            own = {clip.s3_path: -sizes[clip.s3_path] for clip in clips if clip.owner_id == owner_id}
            await counts.add(owner_id, parts_of(own))

    async def fail_lost(self) -> int:
        """Fail videos whose latest job ended badly without updating the catalogue; returns the number of videos.

        For example, a worker that is killed too often never writes the failure itself.
        """
        count = 0
        for status in (VideoStatus.PROCESSING, VideoStatus.QUEUED):
            before: str | None = None
            while some := await self._catalog.videos(VideoPage(AT_ONCE, before, status), SERVICE):
                count += await self._fail(some)
                before = some[-1].video_id
        return count

    async def _fail(self, videos: list[Video]) -> int:
        jobs_of_videos = {video.video_id: list(json.loads(video.jobs).values()) for video in videos}
        job_ids = [job_id for ids in jobs_of_videos.values() for job_id in ids]
        jobs = {job.job_id: job for job in await self._engine.store.get(job_ids) if job is not None}
        count = 0
        for video_id, ids in jobs_of_videos.items():
            existing = [jobs[job_id] for job_id in ids if job_id in jobs]
            job = max(existing, key=lambda job: (job.created_at, job.job_id), default=None)
            if job is not None and job.status in ENDED_BADLY:
                try:
                    await self._catalog.fail(
                        video_id, Writer(job.job_id, job.claim_version, job.created_at), encode(_error_of(job))
                    )
                    count += 1
                except StaleClaim:
                    log.info("video %s moved on", video_id)
        return count

    async def _for_ever(self) -> None:
        with contextlib.suppress(CallsheetError):
            await self._catalog.suggest("warm", 1, SERVICE)  # the first search of a process reads all words
        while True:
            await asyncio.sleep(PERIOD_S * random.uniform(0.5, 1.5))  # noqa: S311 - jitter
            try:
                await self.once()
            except CallsheetError as error:
                log.warning("the chores of the catalogue failed: %s", error)


def _error_of(job: Job) -> dict[str, str]:
    error = json.loads(job.error) if job.error else {}
    code = str(error.get("code") or job.status.value)
    return {"type": type_of(code), "message": error.get("message", ""), "stage": job.kind, "job_id": job.job_id}
