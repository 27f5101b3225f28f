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
from tests.contracts.euterpe.kit import TENANT, Stack, running
from tests.media.corpus import Corpus
from tests.outbox.sink import Sink, answer, raw

DEEP = bool(os.environ.get("CALLSHEET_DEEP"))
ROOT = Path(__file__).parents[3]
STAGES = ["fetching", "processing", "uploading"]
CASES = [(kind, stage) for kind in ("sqlite", "postgres") for stage in STAGES] if DEEP else [("sqlite", "processing")]
FILM = {"key": "film.mp4", "format": "mp4", "height": 240}


def start(url: str, stack: Stack) -> subprocess.Popen[bytes]:
    """A worker as a program, in a folder of workspaces that the next worker has, too."""
    command = [sys.executable, "-m", "callsheet.cli", "worker", "tests.contracts.euterpe.crew:app"]
    options = ["--lease", "1s", "--workspaces", str(stack.workspaces), "--log-level", "error"]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "CALLSHEET_DATABASE_URL": url,
        "CALLSHEET_OBJECTS_URL": stack.app.objects_url,
    }
    return subprocess.Popen([*command, *options], env=environment)


async def seen(stack: Stack, job_id: str, fact: Callable[[Event], bool]) -> None:
    async with asyncio.timeout(40):
        async for event in stack.live.engine.watch(job_id):
            if fact(event):
                return


def in_the_middle_of(stage: str) -> Callable[[Event], bool]:
    """Work of a stage is under way: its picture is being made, or its stage has just begun."""
    if stage == "processing":
        return lambda event: event.step == stage and event.progress > 21
    return lambda event: event.type == "stage" and event.step == stage


def programs_in(folder: Path) -> list[str]:
    """Programs whose command line or folder lies below a folder."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            line, cwd = (place / "cmdline").read_bytes().decode("utf-8", "replace"), str((place / "cwd").readlink())
        except OSError:
            continue
        if cwd.startswith(str(folder)) or (f"{folder}/" in line and "ffmpeg" in line):
            found.append(line)
    return found


@pytest.mark.parametrize(("kind", "stage"), CASES)
async def test_a_worker_that_is_killed_in_a_stage_is_replaced_and_the_outputs_are_whole(
    kind: str, stage: str, tmp_path: Path, corpus: Corpus
) -> None:
    url = stores.fresh_url(kind)
    film = corpus("long.mp4")
    async with running(url, tmp_path, worker=False) as stack, Sink(answer("200 OK", film.read_bytes())) as site:
        source = await stack.own_source(film)
        if stage == "fetching":  # the first answer never ends
            site.turns.insert(0, raw(b"HTTP/1.1 200 OK\r\nContent-Length: 90000\r\n\r\n" + film.read_bytes()[:9000]))
            source = f"http://127.0.0.1:{site.port}/film?signature=1"
        body: dict[str, Any] = {
            "source": source,
            "output": "object:film",
            "outputs": [FILM],
            "status_webhook_url": stack.hook,
        }
        process = start(url, stack)
        try:
            job_id = await stack.post(body)
            await seen(stack, job_id, in_the_middle_of(stage))
            if stage == "fetching":
                await site.until(1, 20)
        finally:
            process.kill()
            process.wait()
        await seen(stack, job_id, lambda event: event.type == "lease_lost")
        assert programs_in(stack.workspaces) == []
        worker = stack.app.worker(workspaces=stack.workspaces, poll=0.05)
        task = asyncio.create_task(worker.run())
        try:
            status = await stack.ended(job_id)
        finally:
            worker.stop()
            await task
        assert status["status"] == "succeeded", status
        assert (status["attempt_count"], len(status["outputs"])) == (2, 1)
        await stack.told("succeeded")
        before = STAGES[: STAGES.index(stage) + 1]
        assert [event["status"] for event in stack.events()] == [*before, "queued", *STAGES, "succeeded"]
        raw_film = await stack.objects.get(f"outputs/{TENANT}/film/film.mp4")
        assert len(raw_film) == status["outputs"][0]["bytes"]
        found = {info.key async for info in stack.objects.list("outputs")}
        assert found == {f"outputs/{TENANT}/film/film.mp4"}
        assert [path for path in stack.workspaces.rglob("*") if path.is_file()] == []
