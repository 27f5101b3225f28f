"""The document's words and numbers, checked through a client: arguments, payloads, sentences, settings."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from callsheet.app import Callsheet
from callsheet.app.video import add_video
from callsheet.catalog.records import VideoStatus, Writer
from callsheet.contracts.cortana import paths
from callsheet.contracts.cortana.outcomes import outcome_of
from callsheet.http import problems
from callsheet.kernel import commands
from callsheet.objects import ObjectNotFound
from callsheet.store.protocol import ClaimRequest
from callsheet.worker.signals import Fatal
from tests import stores
from tests.contracts.cortana.kit import Stack, running
from tests.contracts.cortana.test_clips import watched
from tests.http.live import problem

S3 = {"S3_ENDPOINT": "https://fra1.example.org", "S3_ACCESS_KEY_ID": "k", "S3_SECRET_ACCESS_KEY": "s"}


async def test_a_clip_is_asked_for_by_the_documents_arguments_or_its_whole_payload(tmp_path: Path) -> None:
    async with running(stores.fresh_url("sqlite"), tmp_path, worker=False) as stack:
        video_id = await watched(stack)
        body: dict[str, Any] = {"video_id": video_id, "t_start": 1500, "t_end": 3000}
        whole = {**body, "clip_id": "clip-xyz-123", "padding_ms": 2000, "s3_original_path": paths.original(video_id)}
        by_query = await stack.client.post("/clips", params=body)
        by_payload = await stack.client.post("/clips", json=whole)
        in_capitals = await stack.client.post("/clips", json={**body, "video_id": video_id.upper()})
        for answer in (by_query, by_payload, in_capitals):
            assert (answer.status_code, answer.json()["status"]) == (202, "queued"), answer.text
            job = (await stack.client.get(f"/pipeline/jobs/{answer.json()['job_id']}")).json()
            assert job["payload"] == {**whole, "clip_id": answer.json()["clip_id"]}
        assert by_payload.json()["clip_id"] == "clip-xyz-123"
        other = {**body, "s3_original_path": paths.original(str(uuid.uuid4()))}
        problem(await stack.client.post("/clips", json=other), 422, "validation_failed")
        problem(await stack.client.post("/clips", params={**body, "t_end": "x"}), 422, "validation_failed")
        problem(await stack.client.post("/clips", params={**body, "t_end": 1500}), 422, "validation_failed")
        problem(await stack.client.post("/clips"), 400, "bad_request")


async def test_the_pipelines_jobs_are_listed_from_a_place_that_there_can_be(tmp_path: Path) -> None:
    async with running(stores.fresh_url("sqlite"), tmp_path, worker=False) as stack:
        for cursor in ("zz", "-1", "\0", str(uuid.uuid4()), "9" * 19):
            problem(await stack.client.get("/pipeline/jobs", params={"cursor": cursor}), 422, "validation_failed")


def test_frames_in_a_second_are_a_whole_number_unless_somebody_wants_a_part(tmp_path: Path) -> None:
    app = Callsheet(f"sqlite:///{tmp_path / 'jobs.db'}")
    add_video(app)
    arguments = {"video_id": str(uuid.uuid4()), "s3_original_path": "videos/original/x/master.mp4"}
    sample = app.definitions["video.sample"]
    for query, fps_text in (({"target_fps": 10}, "10"), ({"target_fps": 2.5}, "2.5")):
        payload = json.loads(sample.payload((), {**arguments, **query}))
        assert json.dumps(payload["target_fps"]) == fps_text


@pytest.mark.parametrize("message", ["get {0}: there is none", "{0}"])
def test_a_missing_original_is_told_in_the_documents_words(message: str) -> None:
    path = "videos/original/abc-123/master.mp4"
    outcome = outcome_of(ObjectNotFound(message.format(path)), 1)
    assert isinstance(outcome, Fatal)
    assert str(outcome) == f"Original video not found at {path}"
    other = outcome_of(ObjectNotFound("get frames/x/1.jpg: there is none"), 1)
    assert "frames/x/1.jpg" in str(other)


async def test_completing_again_gives_the_job_that_did_the_work(tmp_path: Path) -> None:
    async with running(stores.fresh_url("sqlite"), tmp_path, worker=False) as stack:
        video_id, job_id = await _begun(stack)
        again = await stack.client.post(f"/videos/{video_id}/complete")
        assert (again.status_code, again.json()["job_id"]) == (202, job_id)
        (job,) = await stack.live.engine.claim(ClaimRequest("w"))
        await stack.catalog.begin(video_id, Writer(job_id, 1), "transcode")
        await stack.live.engine.settle([commands.succeed(job)])  # the next stage goes on; this one is over
        assert (await stack.video(video_id))["status"] == VideoStatus.PROCESSING
        begun = await stack.client.post(f"/videos/{video_id}/complete")
        assert (begun.status_code, begun.json()["job_id"], begun.json()["status"]) == (202, job_id, "done")
        jobs = (await stack.client.get("/pipeline/jobs")).json()["jobs"]
        assert [job["id"] for job in jobs] == [job_id]
        assert (await stack.video(video_id))["status"] == VideoStatus.PROCESSING  # and not queued again


async def test_frames_that_somebody_else_sampled_can_be_read_again(tmp_path: Path) -> None:
    async with running(stores.fresh_url("sqlite"), tmp_path, worker=False) as stack:
        video_id = await watched(stack)
        problem(await stack.client.post(f"/videos/{video_id}/again", json={"stage": "ocr"}), 409, "refused")
        for path, prefix in ((paths.frame(video_id, 1500), f"frames/{video_id}/"), (paths.manifest(video_id),) * 2):
            await stack.objects.put(path, b"{}")
            answer = await stack.client.post(f"/videos/{video_id}/again", json={"stage": "ocr"})
            assert answer.status_code == 202, answer.text
            job = (await stack.client.get(f"/pipeline/jobs/{answer.json()['job_id']}")).json()
            assert job["payload"]["frame_paths"] == [prefix]
            (claimed_job,) = await stack.live.engine.claim(ClaimRequest("w"))
            await stack.live.engine.settle([commands.succeed(claimed_job)])


async def _begun(stack: Stack) -> tuple[str, str]:
    """Add a video with an uploaded file; return its first job."""
    body = (await stack.client.post("/v1/uploads", json={"name": "a.mp4", "size": 3})).json()
    (part,) = body["todo"]
    url = part["url"] if part["url"].startswith("http") else f"{stack.live.url}{part['url']}"
    assert (await stack.client.put(url, content=b"abc", headers=part.get("headers"))).status_code < 300
    added = (await stack.client.post("/videos", json={"upload_id": body["upload_id"]})).json()
    return added["video"]["video_id"], added["job_id"]


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({**S3, "S3_BUCKET": "cortana-vision-prod"}, "s3://cortana-vision-prod"),
        ({"S3_BUCKET": "somebody-elses"}, ""),
        (S3, ""),
        ({**S3, "S3_BUCKET": "b", "CALLSHEET_OBJECTS_URL": "file:///srv/objects"}, "file:///srv/objects"),
    ],
)
def test_the_documents_four_variables_are_enough(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], found: str
) -> None:
    for name in (*S3, "S3_BUCKET", "CALLSHEET_OBJECTS_URL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert Callsheet("sqlite:///:memory:").objects_url == found


def test_a_route_that_takes_a_body_may_be_sent_what_is_no_json() -> None:
    assert set(problems.responses("unsupported_media_type")) == {415, 400}
    assert set(problems.responses("job_not_found")) == {404}
