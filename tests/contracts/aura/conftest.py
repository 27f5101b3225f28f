"""A server of live jobs per store, and a sample life of a job."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from callsheet.contracts.aura import routes
from callsheet.kernel import commands
from callsheet.kernel.job import Job, NewEvent
from callsheet.store.protocol import ClaimRequest
from tests.http.live import Live, serving


@pytest.fixture
async def live(url: str) -> AsyncIterator[Live]:
    async with serving(url, routers=[routes.router]) as live:
        yield live


async def running(live: Live) -> Job:
    await live.client.post("/api/jobs", json={"payload": {}})
    (job,) = await live.engine.claim(ClaimRequest("w", lease_ms=600_000))
    return job


async def through_all_stages(live: Live, job: Job, *, end: bool = True) -> None:
    """A whole life: stages, checkpoints, progress, a warning, an end."""
    for n, stage in enumerate(("Script", "Voice", "Visuals", "Compose", "Rendering")):
        await live.engine.settle([commands.advance(job, stage)])
        job = job._replace(stage=stage)
        await live.engine.settle([commands.progress(job, n * 20, f"in {stage}"), commands.progress(job, n * 20 + 15)])
        if n < 3:
            await live.engine.settle([commands.checkpoint(job, stage, "{}")])
    await live.engine.settle([commands.note(job, NewEvent("warning", job.stage, '{"message":"no voice"}'))])
    if end:
        await live.engine.settle([commands.succeed(job, '{"video":"v.mp4"}')])
