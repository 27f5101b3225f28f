"""Workers that are killed with signal 9 in the middle of a stage: nothing is lost, doubled or left behind."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from callsheet.kernel.job import Event
from tests import stores
from tests.contracts.euterpe.kit import MP3, TENANT, Stack, keys_in, running
from tests.faults.conftest import run_out
from tests.media.corpus import wav_of
from tests.outbox.sink import Sink, answer, raw

DEEP = bool(os.environ.get("CALLSHEET_DEEP"))
ROOT = Path(__file__).parents[3]
STAGES = ["fetching", "processing", "uploading"]
KINDS = ("sqlite", "postgres") if DEEP else ("sqlite",)
PATIENCE_S = 60


def start(url: str, stack: Stack, stage: str) -> subprocess.Popen[bytes]:
    """Start a worker as a program, with a workspace folder that the next worker shares."""
    command = [sys.executable, "-m", "callsheet.cli", "worker", "tests.contracts.euterpe.crew:app"]
    options = ["--lease", "600s", "--workspaces", str(stack.workspaces), "--log-level", "error"]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "CALLSHEET_DATABASE_URL": url,
        "CALLSHEET_OBJECTS_URL": stack.app.objects_url,
        "EUTERPE_STALL": stage,
    }
    return subprocess.Popen([*command, *options], env=environment)


async def seen(stack: Stack, job_id: str, fact: Callable[[Event], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        async for event in stack.live.engine.watch(job_id):
            if fact(event):
                return


async def in_the_middle_of(stage: str, stack: Stack, site: Sink, job_id: str) -> None:
    """A stage is running: bytes are asked for, a program runs, an output is staged."""
    await seen(stack, job_id, lambda event: event.type == "stage" and event.step == stage)
    async with asyncio.timeout(PATIENCE_S):
        match stage:
            case "fetching":
                await site.until(1, PATIENCE_S)
            case "processing":
                while not any("ffmpeg" in line for line in programs_in(stack.workspaces)):
                    await asyncio.sleep(0.02)
            case _:
                while not any(".attempts" in key for key in await keys_in(stack.objects)):
                    await asyncio.sleep(0.02)


def programs_in(folder: Path) -> list[str]:
    """Programs whose command line or folder lies below a folder."""
    results = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            line, cwd = (place / "cmdline").read_bytes().decode("utf-8", "replace"), str((place / "cwd").readlink())
        except OSError:
            continue
        if cwd.startswith(str(folder)) or (f"{folder}/" in line and "ffmpeg" in line):
            results.append(line)
    return results


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_worker_that_is_killed_in_a_stage_is_replaced_and_the_outputs_are_whole(
    kind: str, stage: str, tmp_path: Path
) -> None:
    url = stores.fresh_url(kind)
    sound = tmp_path / "sound.wav"
    sound.write_bytes(wav_of(bytes(range(256)) * 1600))  # 51 s: as long as processing takes that is held up
    async with running(url, tmp_path, worker=False) as stack, Sink(answer("200 OK", sound.read_bytes())) as site:
        source = await stack.own_source(sound)
        if stage == "fetching":  # the first answer never ends
            site.turns.insert(0, raw(b"HTTP/1.1 200 OK\r\nContent-Length: 90000\r\n\r\n" + sound.read_bytes()[:9000]))
            source = f"http://127.0.0.1:{site.port}/sound?signature=1"
        body: dict[str, Any] = {
            "source": source,
            "output": "object:sound",
            "outputs": [MP3],
            "status_webhook_url": stack.hook,
        }
        process = start(url, stack, stage)
        try:
            job_id = await stack.post(body)
            await in_the_middle_of(stage, stack, site, job_id)
        finally:
            process.kill()
            process.wait()
        await run_out(stack.live.engine, await stack.live.engine.get(job_id))
        await seen(stack, job_id, lambda event: event.type == "lease_lost")
        assert programs_in(stack.workspaces) == []
        worker = stack.app.worker(workspaces=stack.workspaces, poll=0.05)
        task = asyncio.create_task(worker.run())
        try:
            status = await stack.ended(job_id, PATIENCE_S)
        finally:
            worker.stop()
            await task
        assert status["status"] == "succeeded", status
        assert (status["attempt_count"], len(status["outputs"])) == (2, 1)
        await stack.told("succeeded", PATIENCE_S)
        before = STAGES[: STAGES.index(stage) + 1]
        words = ["claimed", *before, "queued", "claimed", *STAGES, "succeeded"]
        assert [event["status"] for event in stack.events()] == words
        data = await stack.objects.get(f"outputs/{TENANT}/sound/sound.mp3")
        assert len(data) == status["outputs"][0]["bytes"]
        assert await keys_in(stack.objects) == {
            f"uploads/{TENANT}/0/sound.wav",
            f"outputs/{TENANT}/sound/sound.mp3",
        }
        assert list(stack.workspaces.iterdir()) == []
