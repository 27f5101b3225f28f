"""The document's numbers and words, checked through a client: types, intervals, ends, logs, sweeps."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from callsheet.contracts.aura import folders as job_folders
from callsheet.contracts.aura import routes, stream
from callsheet.contracts.aura.folders import ORPHAN_S, Folders
from callsheet.contracts.aura.tasks import _Sweeps
from callsheet.kernel import commands
from callsheet.kernel.job import Job, NewEvent
from callsheet.kernel.retry import JobError
from callsheet.kernel.settlement import Settlement
from tests import stores
from tests.http.live import Frame, Live, frames, serving
from tests.running_worker import until

from .conftest import running

GONE = "01900000-0000-7000-8000-0000000000aa"


@pytest.fixture
async def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("CALLSHEET_MEDIA_ROOT", str(tmp_path / "media"))
    async with serving(stores.fresh_url("sqlite"), routers=[routes.router]) as live:
        yield live


async def read(live: Live, job_id: str, last: str = "") -> list[Frame]:
    query = {"lastEventId": last} if last else {}
    async with live.client.stream("GET", f"/api/jobs/{job_id}/events", params=query) as answer:
        assert answer.status_code == 200
        return [item async for item in frames(answer)]


ENDS: dict[str, tuple[Callable[[Job], Settlement], str, str, int]] = {
    "job-completed": (lambda job: commands.succeed(job, '{"a":1}'), "Done", "Complete", 100),
    "job-failed": (lambda job: commands.dead_letter(job, JobError("oom", "no memory")), "Failed", "Voice", 25),
    "job-cancelled": (lambda job: commands.cancel(job, "enough"), "Canceled", "Voice", 25),
}


@pytest.mark.parametrize("name", ENDS)
async def test_an_end_is_a_change_of_the_status_and_then_what_came_of_it(live: Live, name: str) -> None:
    end, word, stage, percent = ENDS[name]
    job = await running(live)
    await live.engine.settle([commands.advance(job, "Voice"), commands.progress(job, 25)])
    await live.engine.settle([end(job._replace(stage="Voice", progress=25.0))])
    status, last = (await read(live, job.job_id))[-2:]
    assert (status.event, last.event) == ("job-status", name)
    assert status.data == {
        "status": word,
        "stage": stage,
        "percent": percent,
        "correlationId": last.data["correlationId"],
    }
    assert await read(live, job.job_id, status.id) == [last]  # cut between the two, the second is not lost
    over = await live.client.get(f"/api/jobs/{job.job_id}/events", params={"lastEventId": last.id})
    assert over.status_code == 204


async def test_percentages_are_whole_numbers(live: Live) -> None:
    job = await running(live)
    await live.engine.settle([commands.advance(job, "Rendering"), commands.progress(job, 99.99, "almost")])
    body = (await live.client.get(f"/api/jobs/{job.job_id}")).json()
    assert json.dumps(body["percent"]) == "99"
    await live.engine.settle([commands.succeed(job)])
    frames = await read(live, job.job_id)
    percents = [f.data.get("progressPct", f.data.get("percent")) for f in frames if f.event != "job-completed"]
    assert [json.dumps(percent) for percent in percents if percent is not None] == ["0", "0", "0", "99", "100"]


async def test_keepalives_come_at_their_interval_however_much_is_told(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "KEEPALIVE_S", 0.5)
    job = await running(live)
    times: list[datetime] = []
    reporting = asyncio.create_task(_report(live, job))
    try:
        async with live.client.stream("GET", f"/api/jobs/{job.job_id}/events") as answer:
            async for line in answer.aiter_lines():
                if line.startswith(": keepalive: "):
                    times.append(datetime.fromisoformat(line.removeprefix(": keepalive: ")))
                    if len(times) == 4:
                        break
    finally:
        reporting.cancel()
    pauses = [(later - earlier).total_seconds() for earlier, later in pairwise(times)]
    assert min(pauses) >= 0.45, pauses  # never sooner, though progress that is held back wakes the stream all the time


async def _report(live: Live, job: Job) -> None:
    for n in range(10_000):
        await live.engine.settle([commands.progress(job, n / 100)])
        await asyncio.sleep(0.02)


async def test_a_failure_brings_the_last_lines_of_the_log(live: Live) -> None:
    job = await running(live)
    await live.engine.settle([commands.advance(job, "Voice")])
    job = job._replace(stage="Voice")
    await live.engine.settle([commands.note(job, NewEvent("log", "Voice", '{"level":"info","message":"speaking"}'))])
    await live.engine.settle([commands.note(job, NewEvent("warning", "Voice", '{"message":"no voice"}'))])
    await live.engine.settle([commands.dead_letter(job, JobError("oom", "no memory"))])
    logs = (await read(live, job.job_id))[-1].data["logs"]
    assert [line.partition(" ")[2] for line in logs] == [
        "info Voice: speaking",
        "warning Voice: no voice",
        "error Voice: no memory",
    ]
    assert all(datetime.fromisoformat(line.partition(" ")[0]).tzinfo for line in logs)


async def test_a_failed_job_has_the_time_of_its_failure(live: Live) -> None:
    job = await running(live)
    assert (await live.client.get(f"/api/jobs/{job.job_id}")).json()["failedAt"] is None
    await live.engine.settle([commands.dead_letter(job, JobError("oom", "no memory"))])
    failed_job = (await live.client.get(f"/api/jobs/{job.job_id}")).json()
    assert failed_job["failedAt"] == failed_job["endedUtc"] is not None


async def test_done_has_two_names(live: Live) -> None:
    job = await running(live)
    await live.engine.settle([commands.succeed(job)])
    for word in ("Done", "Succeeded"):
        (jobs,) = (await live.client.get("/api/jobs", params={"status": word})).json()["jobs"]
        assert jobs["status"] == "Done"


def _orphan(folders: Folders, kind: str, age_s: float) -> Path:
    path = folders.make(kind, GONE)
    os.utime(path, (time.time() - age_s,) * 2)
    return path


async def test_a_server_sweeps_orphans_though_nobody_cancels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert job_folders.SWEEP_S == 24 * 3600
    monkeypatch.setattr(job_folders, "FIRST_SWEEP_S", 0.05)
    monkeypatch.setenv("CALLSHEET_MEDIA_ROOT", str(tmp_path / "media"))
    orphan = _orphan(Folders(), "temp", 25 * 3600)
    async with serving(stores.fresh_url("sqlite"), routers=[routes.router]):
        await until(lambda: not orphan.exists())


async def test_a_worker_sweeps_what_another_one_left(tmp_path: Path) -> None:
    folders = Folders(tmp_path / "media")
    old, young = _orphan(folders, "temp", ORPHAN_S["temp"] + 60), _orphan(folders, "proxy", 47 * 3600)
    sweeps = _Sweeps()
    await sweeps.now_and_then(folders)
    assert (old.exists(), young.exists()) == (False, True)
    again = _orphan(folders, "temp", ORPHAN_S["temp"] + 60)
    await sweeps.now_and_then(folders)
    assert again.exists()  # once a day is enough


def test_a_folder_that_is_used_again_is_no_orphan(tmp_path: Path) -> None:
    folders = Folders(tmp_path / "media")
    _orphan(folders, "temp", 99 * 3600)
    folders.make("temp", GONE)
    assert folders.remove_old(time.time()) == 0
