"""`compose` as a live job: real speech, real frames, real ffmpeg; cancelled in mid-render, and resumed."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import av
import psutil
import pytest

from callsheet import Callsheet
from callsheet.api import objects
from callsheet.contracts.aura import routes
from callsheet.contracts.aura.folders import Folders
from callsheet.contracts.aura.tasks import add_tasks
from callsheet.contracts.control_plane import files
from callsheet.worker import Worker
from tests import stores
from tests.http.live import Live, frames, serving
from tests.running_worker import working

SCRIPT = """---
size: 320x180
---
# The sea

## Waves

The wind makes waves.

## Tides

The moon makes tides.
"""
LONG = SCRIPT + "".join(
    f"\n## Part {n}\n\nOne more sentence about the sea, number {n}, to be read aloud.\n" for n in range(12)
)


class Studio:
    """A server, a worker and their folders."""

    def __init__(self, live: Live, folders: Folders, worker: Worker) -> None:
        self.live, self.folders, self.worker = live, folders, worker

    async def create(self, script: str) -> str:
        answer = await self.live.client.post("/api/jobs", json={"payload": {"script": script}})
        return str(answer.json()["jobId"])

    async def job(self, job_id: str) -> dict[str, Any]:
        body: dict[str, Any] = (await self.live.client.get(f"/api/jobs/{job_id}")).json()
        return body

    async def events(self, job_id: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        async with self.live.client.stream("GET", f"/api/jobs/{job_id}/events", timeout=60) as answer:
            async for item in frames(answer):
                yield item.event, item.data


@pytest.fixture
async def studio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Studio]:
    monkeypatch.setenv("CALLSHEET_MEDIA_ROOT", str(tmp_path / "media"))
    url, folder = stores.fresh_url("sqlite"), f"file://{tmp_path}/objects"
    app = Callsheet(url)
    app.objects_url = folder
    add_tasks(app)
    await app.migrate()
    routers = [routes.router, files.router, objects.router]
    async with app, serving(url, routers=routers, objects_url=folder) as live, working(app, grace=5.0) as worker:
        yield Studio(live, Folders(), worker)


async def test_a_script_becomes_a_video_with_all_its_stages(studio: Studio, tmp_path: Path) -> None:
    job_id = await studio.create(SCRIPT)
    stages: list[str] = []
    percents: list[float] = []
    last: tuple[str, dict[str, Any]] = ("", {})
    async for event, data in studio.events(job_id):
        last = (event, data)
        if event == "step-status" and data["status"] == "started":
            stages.append(data["step"])
        if (percent := data.get("progressPct", data.get("percent"))) is not None:
            percents.append(percent)
    assert stages == ["Initialization", "Script", "Voice", "Visuals", "Compose", "Rendering"]
    assert percents == sorted(percents)
    assert last[0] == "job-completed", last
    assert last[1]["output"]["ran"] == ["Script", "Voice", "Visuals"]
    assert {file["name"] for file in last[1]["artifacts"]} == {
        "video.mp4",
        "poster.jpg",
        "captions.vtt",
        "manifest.json",
    }
    link = await studio.live.client.get(f"/v1/jobs/{job_id}/artifacts/video.mp4")
    path = tmp_path / "got.mp4"
    path.write_bytes((await studio.live.client.get(link.headers["location"])).content)
    with av.open(str(path)) as video:
        assert {stream.type for stream in video.streams} >= {"video", "audio"}
        assert abs((video.duration or 0) / av.time_base - last[1]["output"]["duration_s"]) < 0.5
    captions = (await studio.live.client.get(f"/v1/jobs/{job_id}/artifacts/captions.vtt")).headers["location"]
    text = (await studio.live.client.get(captions)).text
    assert text.startswith("WEBVTT")
    assert "moon" in text
    assert not studio.folders.exists(job_id)


async def test_a_render_is_cancelled_cleanly_and_its_steps_are_taken_over(studio: Studio) -> None:
    job_id = await studio.create(LONG)
    async for event, data in studio.events(job_id):
        if event == "step-status" and data["step"] == "Rendering":
            assert studio.folders.remove_old(time.time() + 99 * 3600) == 0, "the attempt holds them"
            assert [item.name for item in (studio.folders.root / "temp" / job_id).iterdir()] == ["1"]
            answer = await studio.live.client.post(f"/api/jobs/{job_id}/cancel")
            assert answer.json()["cleanupScheduled"]
    assert event == "job-cancelled"
    assert not studio.folders.exists(job_id)
    here = str(studio.folders.root)
    assert not [p for p in psutil.process_iter(["cmdline"]) if here in " ".join(p.info["cmdline"] or ())]
    job = await studio.job(job_id)
    assert (job["status"], job["endedUtc"]) == ("Canceled", job["canceledUtc"])
    assert (job["canResume"], job["lastCompletedStep"]) == (True, "Visuals")
    again = (await studio.live.client.post(f"/api/jobs/{job_id}/resume")).json()
    event, data = [job_events async for job_events in studio.events(again["jobId"])][-1]
    assert event == "job-completed", data
    assert data["output"]["ran"] == []  # each step ran once, in the job that was cancelled


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("# Only a title", "invalid_script"),
        ("", "invalid_script"),
        ("# T\n\n## S\n\n![x](object:uploads/other/secret.png)\n\nText.", "picture_refused"),
        ("# T\n\n## S\n\n![x](https://example.com/x.png)\n\nText.", "picture_refused"),
    ],
)
async def test_what_cannot_be_made_is_told_at_once(studio: Studio, script: str, code: str) -> None:
    job_id = await studio.create(script)
    event, data = [job_events async for job_events in studio.events(job_id)][-1]
    assert event == "job-failed"
    assert data["errors"][0]["code"] in (code, "llm_not_configured", "chat_not_configured"), json.dumps(data)
    assert not studio.folders.exists(job_id)
