"""Workers killed with signal 9 after a stage's last write and before its settlement: no row is lost or duplicated."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import stores
from tests.contracts.cortana.kit import Stack, running
from tests.contracts.cortana.test_stages import PIPELINE, jobs_of
from tests.faults.conftest import run_out
from tests.media.made_up import MadeUp

ROOT = Path(__file__).parents[3]
KINDS = ("sqlite", "postgres") if os.environ.get("CALLSHEET_DEEP") else ("sqlite",)
PATIENCE_S = 100


def start(url: str, stack: Stack, stage: str, mark: Path) -> subprocess.Popen[bytes]:
    """Start a worker as a program, with a workspace folder that the next worker shares."""
    command = [sys.executable, "-m", "callsheet.cli", "worker", "tests.contracts.cortana.crew:app"]
    options = ["--lease", "600s", "--poll", "0.2s", "--workspaces", str(stack.workspaces), "--log-level", "error"]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "CALLSHEET_DATABASE_URL": url,
        "CALLSHEET_OBJECTS_URL": stack.app.objects_url,
        "CORTANA_STALL": stage,
        "CORTANA_MARK": str(mark),
    }
    return subprocess.Popen([*command, *options], env=environment)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_worker_killed_at_the_end_of_each_stage_leaves_one_whole_result(
    kind: str, tmp_path: Path, video: Callable[[str], MadeUp]
) -> None:
    film = video("price")
    url = stores.fresh_url(kind)
    async with running(url, tmp_path, worker=False) as stack:
        video_id = await stack.added(film.path)
        for stage in PIPELINE:
            mark = tmp_path / stage
            process = start(url, stack, stage, mark)
            try:
                async with asyncio.timeout(PATIENCE_S):
                    while not mark.exists():
                        assert process.poll() is None, "the worker ended by itself"
                        await asyncio.sleep(0.05)
            finally:
                process.kill()
                process.wait()
            held = (await stack.video(video_id))["jobs"][stage]
            await run_out(stack.live.engine, await stack.live.engine.get(held), reap=True)
        process = start(url, stack, "", tmp_path / "none")
        try:
            async with asyncio.timeout(PATIENCE_S):
                async for _ in stack.live.engine.watch((await stack.video(video_id))["jobs"]["segment_index"]):
                    pass
        finally:
            process.kill()
            process.wait()
        assert (await stack.video(video_id))["status"] == "ready"
        jobs = await jobs_of(stack)
        assert [(job["job_type"], job["status"]) for job in jobs] == [(stage, "done") for stage in PIPELINE]
        segments = (await stack.client.get(f"/videos/{video_id}/segments")).json()["segments"]
        killed_texts = [(text["text"], text["t_start"], text["t_end"]) for text in segments]
        assert len(set(killed_texts)) == len(killed_texts) > 0
    assert killed_texts == await _undisturbed(tmp_path / "again", film)


async def _undisturbed(folder: Path, film: MadeUp) -> list[tuple[str, int, int]]:
    """What the same video gives when nobody is killed."""
    async with running(stores.fresh_url("sqlite"), folder) as stack:
        video_id = await stack.added(film.path)
        assert (await stack.over(video_id))["status"] == "ready"
        segments = (await stack.client.get(f"/videos/{video_id}/segments")).json()["segments"]
        return [(text["text"], text["t_start"], text["t_end"]) for text in segments]
