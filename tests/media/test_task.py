"""ffmpeg inside a task: ffmpeg ends with the attempt, and its progress becomes the job's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from callsheet import Callsheet, Context
from callsheet.kernel.job import Status
from callsheet.media.ffmpeg import Ffmpeg
from callsheet.media.spec import OutputSpec
from callsheet.media.transcode import transcode
from tests import stores
from tests.media.corpus import Corpus
from tests.media.test_ffmpeg import END_S, Started, endless
from tests.running_worker import until, working
from tests.worker.conftest import events_of


@pytest.fixture
async def app() -> AsyncIterator[Callsheet]:
    async with Callsheet(stores.fresh_url("sqlite")) as app:
        yield app


async def test_a_task_makes_an_output_and_tells_its_progress(app: Callsheet, corpus: Corpus) -> None:
    source = corpus("normal.mp4")

    @app.task(max_attempts=1)
    async def encode(ctx: Context) -> dict[str, object]:
        how = Ffmpeg.default(start=ctx.children.start, is_stopped=lambda: ctx.cancelled)
        spec = OutputSpec("a.mp4", "mp4")
        output = await transcode(source, spec, ctx.workspace, how, lambda report: ctx.progress(report.percent or 0))
        return {"key": output.key, "bytes": output.size_bytes, "codec": output.codec}

    job = await encode.enqueue()
    await app.worker().run(burst=True)
    assert (await job.get()).status is Status.SUCCEEDED
    assert (await job.result())["codec"] == "h264"
    assert "progress" in await events_of(app, job.job_id)


async def test_a_cancelled_job_takes_its_ffmpeg_along(app: Callsheet, corpus: Corpus, tmp_path: Path) -> None:
    work, has_started, running = endless(corpus), Started(), asyncio.Event()

    @app.task(max_attempts=1)
    async def encode(ctx: Context) -> None:
        has_started.by = ctx.children.start
        how = Ffmpeg.default(start=has_started, is_stopped=lambda: ctx.cancelled)
        await how.run(work, tmp_path, lambda _: running.set())

    job = await encode.enqueue()
    async with working(app), asyncio.timeout(60):
        await running.wait()
        await job.cancel()
        began = time.monotonic()
        await until(lambda: not has_started.are_alive())
        assert time.monotonic() - began < END_S
    assert (await job.get()).status is Status.CANCELED
