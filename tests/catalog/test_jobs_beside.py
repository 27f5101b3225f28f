"""Workers that move jobs by SQL, beside the API and beside our workers: every interface shows a job alike."""

from __future__ import annotations

import json

import asyncpg
import pytest

from callsheet.catalog.records import SERVICE
from callsheet.contracts.cortana.models import pipeline_job
from callsheet.kernel import commands
from callsheet.kernel.job import Status
from tests.catalog.test_jobs_insert import Place, place
from tests.catalog.test_jobs_moves import ERROR, Worker, queued, workers

__all__ = ["place", "workers"]


async def test_the_api_tells_the_error_and_the_retries_as_sql_does(place: Place, workers: list[Worker]) -> None:
    _, job_id = await queued(place)
    error = {**ERROR, "host": "w7"}
    for change in ("status = 'queued', retry_count = retry_count + 1", "status = 'failed'", "status = 'queued'"):
        values = []
        if change != "status = 'queued'":
            await workers[0].claim()
            change, values = f"{change}, payload = $2", [json.dumps({"error": error})]  # noqa: PLW2901
        await workers[0].change(job_id, change, *values)
        (row,) = await workers[0].session.fetch("SELECT * FROM jobs WHERE id = $1", job_id)
        job_view = pipeline_job(await place.job(job_id))
        assert (job_view["status"], job_view["retry_count"]) == (row["status"], row["retry_count"])
        assert job_view["payload"] == json.loads(row["payload"])
        assert row["status"] != "failed" or job_view["payload"]["error"] == error
    await workers[0].claim()
    await place.store.settle([commands.cancel(await place.job(job_id), "not needed")])
    (row,) = await workers[0].session.fetch("SELECT payload FROM jobs WHERE id = $1", job_id)
    for payload in (json.loads(row["payload"]), pipeline_job(await place.job(job_id))["payload"]):
        assert (payload["error"]["type"], payload["error"]["message"]) == ("Canceled", "not needed")
        assert "host" not in payload["error"]


async def test_a_failed_job_stays_so_beside_an_active_one(place: Place, workers: list[Worker]) -> None:
    video_id, job_id = await queued(place)
    await workers[0].claim()
    await workers[0].change(job_id, "status = 'failed'")
    other = await place.insert(video_id, "transcode")
    with pytest.raises(asyncpg.UniqueViolationError, match=f"has an active transcode job already: {other['id']}"):
        await workers[0].change(job_id, "status = 'queued'")
    assert (await place.job(job_id)).status is Status.FAILED


async def test_a_reading_by_sql_is_the_last_one(place: Place, workers: list[Worker]) -> None:
    """Our worker met no original before it; the next stage must ignore this result."""
    video_id, job_id = await queued(place, "ocr")
    await workers[0].session.execute("UPDATE videos SET coverage = $1", json.dumps({"detections": 0, "kept": 3}))
    await workers[0].claim("ocr")
    await workers[0].change(job_id, "status = 'done'")
    video = await place.catalog.video(video_id, SERVICE)
    assert video is not None
    assert json.loads(video.coverage) == {"kept": 3}
