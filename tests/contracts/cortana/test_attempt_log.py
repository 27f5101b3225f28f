"""Reports of an attempt: log lines, and optionally an object."""

from __future__ import annotations

import io
import json
import logging
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from callsheet.catalog.records import Video, VideoStatus
from callsheet.cli import logs
from callsheet.contracts.cortana import paths
from callsheet.contracts.cortana.jobs import stage_job, start_job
from callsheet.kernel.job import Status
from callsheet.objects import ObjectsError
from tests import stores
from tests.contracts.cortana.kit import TENANT, Stack, running


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """Return all log records as JSON."""
    root = logging.getLogger()
    before, level, stream = root.handlers[:], root.level, io.StringIO()
    logs.set_up("json", "info", stream)
    yield stream
    root.handlers[:] = before
    root.setLevel(level)


async def refused(stack: Stack) -> tuple[str, str]:
    """Upload an invalid video and wait for its job's failure: return the job and the video."""
    video_id = str(uuid.uuid4())
    key = paths.original(video_id)
    await stack.objects.put(key, b"no video at all")
    await stack.catalog.add_video(Video(video_id, TENANT, None, "x", VideoStatus.UPLOADING, key))
    new = start_job(video_id, TENANT)
    await stack.live.engine.enqueue([new])
    async for _ in stack.live.engine.watch(new.job_id):
        pass
    return new.job_id, video_id


def told_of(stream: io.StringIO, job_id: str) -> list[dict[str, Any]]:
    """Return the contract's log lines about one job."""
    records = [json.loads(line) for line in stream.getvalue().splitlines()]
    return [line for line in records if line.get("job_id") == job_id and "job_type" in line]


async def test_log_lines_name_the_job_the_video_the_type_and_the_status(tmp_path: Path, lines: io.StringIO) -> None:
    async with running(stores.fresh_url("sqlite"), tmp_path) as stack:
        job_id, video_id = await refused(stack)
        begun, end_record = told_of(lines, job_id)
        about = {"job_id": job_id, "video_id": video_id, "job_type": "transcode", "attempt": 1}
        assert {name: begun[name] for name in (*about, "status")} == {**about, "status": "processing"}
        assert {name: end_record[name] for name in (*about, "status")} == {**about, "status": "failed"}
        assert end_record["error"]["type"]
        assert await stack.keys("logs/pipeline") == set(), "nobody asked for it"


async def test_a_log_is_kept_with_the_objects_where_that_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLSHEET_PIPELINE_LOGS", "true")
    async with running(stores.fresh_url("sqlite"), tmp_path) as stack:
        job_id, video_id = await refused(stack)
        assert await stack.keys("logs/pipeline") == {f"logs/pipeline/{job_id}.json"}
        record = json.loads(await stack.objects.get(f"logs/pipeline/{job_id}.json"))
        assert (record["job_id"], record["video_id"], record["job_type"]) == (job_id, video_id, "transcode")
        assert (record["status"], record["attempt"]) == ("failed", 1)
        assert record["started_at"] <= record["ended_at"]
        body = (await stack.live.client.get(f"/pipeline/jobs/{job_id}")).json()["payload"]["error"]
        assert record["error"] == {"type": body["type"], "message": body["message"]}


async def test_a_log_that_cannot_be_kept_harms_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CALLSHEET_PIPELINE_LOGS", "true")
    async with running(stores.fresh_url("sqlite"), tmp_path) as stack:
        put = stack.objects.put

        async def only_originals(key: str, *args: Any, **kwargs: Any) -> Any:
            if key.startswith("logs/"):
                raise ObjectsError("the disk is full")
            return await put(key, *args, **kwargs)

        monkeypatch.setattr(stack.objects, "put", only_originals)
        job_id, _ = await refused(stack)
        job = await stack.live.engine.get(job_id)
        assert job.status is Status.FAILED
        assert json.loads(job.error or "{}")["code"] != "internal"
        assert "its log could not be kept" in caplog.text


async def test_a_job_refused_for_its_payload_is_told_of_too(tmp_path: Path, lines: io.StringIO) -> None:
    async with running(stores.fresh_url("sqlite"), tmp_path) as stack:
        video_id = str(uuid.uuid4())
        wrong = {"video_id": video_id, "s3_original_path": paths.original(video_id), "size": 5}
        new = stage_job("transcode", video_id, TENANT, wrong)
        await stack.live.engine.enqueue([new])
        async for _ in stack.live.engine.watch(new.job_id):
            pass
        (entry,) = told_of(lines, new.job_id)
        about = {"job_id": new.job_id, "video_id": video_id, "job_type": "transcode", "status": "failed"}
        assert {name: entry[name] for name in about} == about
        assert entry["error"]["type"] == "InvalidPayload"
