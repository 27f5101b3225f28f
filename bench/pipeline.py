"""A ten-minute 1080p screencast through the whole video search pipeline: the time of each stage, and total memory."""

from __future__ import annotations

import asyncio
import json
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from bench import places
from bench.measure import keep, say
from callsheet.app import Callsheet
from callsheet.app.video import add_video
from callsheet.catalog.records import SERVICE, Video, VideoStatus
from callsheet.contracts.cortana import paths
from callsheet.contracts.cortana.jobs import PIPELINE, follow, start_job
from callsheet.media.binaries import ffmpeg
from tests.media.made_up import CAPTIONS_40, made_up

MINUTES, QUICK_MINUTES = 10, 1
LOOK_S = 0.2
MB = 1024 * 1024


async def measure(kind: str, *, quick: bool) -> None:
    """Measure the pipeline on one store, with a folder for objects."""
    minutes = QUICK_MINUTES if quick else MINUTES
    with tempfile.TemporaryDirectory(prefix="callsheet-bench-") as place:
        folder = Path(place)
        source = await asyncio.to_thread(_screencast, folder, minutes)
        say(f"pipeline {kind}: {minutes} min, {source.stat().st_size / MB:.0f} MB")
        async with places.fresh(kind) as url:
            keep(f"pipeline-{kind}", await _through(url, folder, source, minutes), quick=quick)


def _screencast(folder: Path, minutes: int) -> Path:
    """Forty captions a minute over a moving picture, in 1080p at 30 frames a second."""
    short = made_up(CAPTIONS_40, folder).path
    whole = folder / "screencast.mp4"
    command = [str(ffmpeg().path), "-v", "error", "-stream_loop", str(minutes - 1), "-i", str(short)]
    command += ["-vf", "scale=1920:1080,fps=30", "-c:v", "libx264", "-preset", "veryfast", "-an", str(whole)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return whole


async def _through(url: str, folder: Path, source: Path, minutes: int) -> dict[str, Any]:
    app = Callsheet(url)
    app.objects_url = f"file://{folder / 'objects'}"
    add_video(app)
    await app.migrate()
    async with app:
        engine, catalog, objects = await app.engine(), await app.catalog(), await app.objects()
        video_id = str(uuid.uuid4())
        key = paths.original(video_id)
        await objects.put_file(key, source, content_type="video/mp4")
        await catalog.add_video(Video(video_id, "bench", None, "screencast", VideoStatus.UPLOADING, key))
        worker = app.worker(workspaces=folder / "work", concurrency=2)
        running = asyncio.create_task(worker.run())
        peak = _Peak()
        watching = asyncio.create_task(peak.watch())
        began = time.perf_counter()
        try:
            await engine.enqueue([start_job(video_id, "bench")])
            async for far in follow(engine, catalog, video_id):
                stage = next(reversed(far.stages), "")
            wall_s = time.perf_counter() - began
        finally:
            watching.cancel()
            worker.stop()
            await running
        video = await catalog.video(video_id, SERVICE)
        assert video is not None
        if video.status is not VideoStatus.READY:
            raise RuntimeError(f"{stage}: {video.error}")
        jobs = await engine.store.get([json.loads(video.jobs)[stage] for stage in PIPELINE])
    stages = {
        name: ((job.ended_at or 0) - (job.started_at or 0)) / 1000
        for name, job in zip(PIPELINE, jobs, strict=True)
        if job is not None
    }
    of = json.loads(video.coverage)
    for name, took_s in stages.items():
        say(f"    {name}: {took_s:.1f} s")
    say(f"    all: {wall_s:.1f} s of {minutes * 60} s, {peak.bytes / MB:.0f} MB")
    return {
        "video_s": minutes * 60,
        "wall_s": wall_s,
        "stages": stages,
        "peak_mb": peak.bytes / MB,
        "kept": of["kept"],
        "sampled": of["sampled"],
        "detections": of["detections"],
    }


class _Peak:
    """Return the peak memory of this process and all its descendants together."""

    bytes = 0

    async def watch(self) -> None:
        me = psutil.Process()
        while True:
            total = 0
            for process in (me, *me.children(recursive=True)):
                try:
                    total += process.memory_full_info().pss
                except psutil.Error:
                    continue
            self.bytes = max(self.bytes, total)
            await asyncio.sleep(LOOK_S)


def sections(records: dict[str, dict[str, Any]], table: Callable[[Any, Any], str]) -> list[str]:
    """Return the paragraphs and tables for RESULTS.md."""
    text = (
        "A screencast in 1080p with forty captions a minute, from the first job to `ready`, with one worker on both cores. "
        "Memory is that of the worker and all its programs together (shared pages counted once)."
    )
    rows = []
    for store, record in records.items():
        of = record["measured"]
        stages = " + ".join(f"{of['stages'][stage]:.0f}" for stage in PIPELINE)
        speed = f"{of['video_s'] / of['wall_s']:.2f} ×"
        rows.append(
            (
                store,
                f"{of['video_s']} s",
                f"{of['wall_s']:.0f} s ({stages})",
                speed,
                f"{of['peak_mb']:.0f} MB",
                of["kept"],
                of["detections"],
            )
        )
    heads = (
        "store",
        "video",
        "transcode + sample + ocr + index",
        "of real time",
        "memory",
        "frames kept",
        "texts read",
    )
    return [text, table(heads, rows)]
