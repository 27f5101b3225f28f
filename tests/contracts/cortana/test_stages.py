"""The whole pipeline, from an upload to a search, on SQLite with a folder and on PostgreSQL with a real S3."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2

from callsheet.contracts.cortana import paths
from callsheet.kernel.job import Status
from callsheet.store.protocol import JobQuery
from tests import stores
from tests.contracts.cortana.kit import OTHER, TEAM, Stack, running
from tests.media.made_up import MadeUp

Video = Callable[[str], MadeUp]
PIPELINE = ["transcode", "sample", "ocr", "segment_index"]


async def jobs_of(stack: Stack) -> list[dict[str, Any]]:
    response = await stack.client.get("/pipeline/jobs")
    jobs: list[dict[str, Any]] = response.json()["jobs"]
    return list(reversed(jobs))


async def test_a_video_goes_through_all_stages_and_is_found(
    places: tuple[str, str], tmp_path: Path, video: Video
) -> None:
    film = video("slide")
    async with running(stores.fresh_url(places[0]), tmp_path, objects_url=places[1]) as stack:
        video_id = await stack.added(film.path, title="Results")
        ready = await stack.over(video_id)
        assert ready["status"] == "ready", ready["error"]
        await _check_artifacts(stack, video_id)
        await _check_jobs(stack, video_id)
        assert (ready["width"], ready["height"], ready["duration_ms"]) == (640, 360, 8000)
        assert ready["s3_proxy_path"] == f"videos/proxy/{video_id}/index.m3u8"
        assert ready["s3_thumb_path"] == f"thumbs/{video_id}/poster.jpg"
        assert ready["coverage"]["kept"] <= ready["coverage"]["sampled"]
        await _check_search(stack, video_id)
        await _check_clip(stack, video_id)


async def _check_artifacts(stack: Stack, video_id: str) -> None:
    assert await stack.keys(f"videos/original/{video_id}") == {paths.original(video_id)}
    proxies = await stack.keys(f"videos/proxy/{video_id}")
    assert f"videos/proxy/{video_id}/index.m3u8" in proxies
    assert any("/segment_" in key and key.endswith(".ts") for key in proxies)
    assert await stack.keys(f"thumbs/{video_id}") == {f"thumbs/{video_id}/poster.jpg"}
    frames = await stack.keys(f"frames/{video_id}")
    manifest = json.loads(await stack.objects.get(paths.manifest(video_id)))
    times = [frame["timestamp_ms"] for frame in manifest["frames"]]
    assert frames == {paths.manifest(video_id), *(paths.frame(video_id, at) for at in times)}
    playlist = await stack.client.get(f"/videos/{video_id}/hls/index.m3u8")
    assert playlist.headers["content-type"] == "application/vnd.apple.mpegurl"
    poster = await stack.client.get(f"/videos/{video_id}/poster.jpg")
    assert poster.content[:3] == b"\xff\xd8\xff"


async def _check_jobs(stack: Stack, video_id: str) -> None:
    """Check that each job type has one finished job with the contract's exact payload."""
    jobs = await jobs_of(stack)
    assert [(job["job_type"], job["status"], job["retry_count"]) for job in jobs] == [(n, "done", 0) for n in PIPELINE]
    transcode, sample, ocr, index = (job["payload"] for job in jobs)
    original = f"videos/original/{video_id}/master.mp4"
    assert transcode == {"video_id": video_id, "s3_original_path": original}
    assert sample == {**transcode, "target_fps": 10, "dedupe_threshold": 0.95}
    assert set(ocr) == {"video_id", "frame_paths", "languages", "min_confidence"}
    assert (ocr["languages"], ocr["min_confidence"]) == (["eng"], 0.6)
    assert all(path.startswith(f"frames/{video_id}/") for path in ocr["frame_paths"])
    assert index == {"video_id": video_id}


async def _check_search(stack: Stack, video_id: str) -> None:
    result = await stack.search("revenue grew")
    (hit,) = result["hits"]
    assert (hit["video_id"], hit["title"]) == (video_id, "Results")
    assert abs(hit["t_start"] - 1500) <= 150
    assert [hit["text"][mark["start"] : mark["end"]] for mark in hit["marks"]] == ["Revenue", "grew"]
    picture = await stack.client.get(hit["thumbnail_url"])
    assert picture.content[:3] == b"\xff\xd8\xff"
    assert (await stack.search("revemue"))["hits"], "a wrong letter is forgiven"
    words = (await stack.client.get("/search/suggestions", params={"q": "rev"})).json()["suggestions"]
    assert "revenue" in [word["word"] for word in words]
    for kind, head in (("vtt", "WEBVTT"), ("srt", "1\n"), ("csv", "start,"), ("json", "{")):
        text = (await stack.client.get(f"/videos/{video_id}/text", params={"format": kind})).text
        assert text.startswith(head)
        assert "Revenue grew by 14 percent" in text
    numbers = (await stack.client.get(f"/videos/{video_id}/entities")).json()["entities"]
    assert "number" in {entity["entity_type"] for entity in numbers}


async def _check_clip(stack: Stack, video_id: str) -> None:
    body = {"video_id": video_id, "t_start": 1000, "t_end": 2000, "clip_id": "one"}
    reply = (await stack.client.post("/clips", json=body)).json()
    assert reply["clip_id"] == "one"
    async for _ in stack.live.engine.watch(reply["job_id"]):
        pass
    clip = (await stack.client.get("/clips/one")).json()
    assert (clip["status"], clip["actual_start"], clip["actual_end"]) == ("done", 0, 4000)
    assert clip["s3_path"] == f"videos/clips/{video_id}/one.mp4"
    response = await stack.client.get(clip["url"])
    assert response.content[4:8] == b"ftyp"
    again = (await stack.client.post("/clips", json=body)).json()
    assert (again["job_id"], again["status"]) == (reply["job_id"], "done")


async def test_others_see_nothing_and_the_team_may_look_but_not_change(tmp_path: Path, video: Video) -> None:
    film = video("price")
    async with running(stores.fresh_url("sqlite"), tmp_path) as stack:
        video_id = await stack.added(film.path, team_id=TEAM)
        assert (await stack.over(video_id))["status"] == "ready"
        word = film.truths[0].text.split()[0]
        async with await stack.live.key(OTHER) as other:
            await _sees_nothing(other, video_id, word)
        async with await stack.live.key("colleague", teams=[TEAM]) as colleague:
            assert (await colleague.get(f"/videos/{video_id}")).status_code == 200
            assert (await colleague.get("/search", params={"q": word})).json()["hits"]
            assert (await colleague.delete(f"/videos/{video_id}")).status_code == 403
            assert (await colleague.post(f"/videos/{video_id}/again", json={})).status_code == 403
        assert (await stack.client.delete(f"/videos/{video_id}")).status_code == 204
        assert (await stack.client.get(f"/videos/{video_id}")).status_code == 404
        assert not (await stack.search(word))["hits"]
        for folder in paths.folders(video_id):
            assert not await stack.keys(folder)


async def _sees_nothing(other: httpx2.AsyncClient, video_id: str, word: str) -> None:
    for path in ("", "/segments", "/entities", "/text", "/clips", "/poster.jpg", "/hls/index.m3u8", "/frames/at/0.jpg"):
        response = await other.get(f"/videos/{video_id}{path}")
        assert response.json()["code"] == "video_not_found", path
    assert (await other.get("/videos")).json()["videos"] == []
    assert (await other.get("/search", params={"q": word})).json()["hits"] == []
    assert (await other.get("/search/suggestions", params={"q": word[:2]})).json()["suggestions"] == []
    body = {"video_id": video_id, "t_start": 0, "t_end": 1000}
    assert (await other.post("/clips", json=body)).json()["code"] == "video_not_found"
    assert (await other.post(f"/videos/{video_id}/again", json={})).json()["code"] == "video_not_found"
    assert (await other.delete(f"/videos/{video_id}")).json()["code"] == "video_not_found"


async def test_indexing_again_changes_nothing_and_reading_again_starts_from_the_frames(
    tmp_path: Path, video: Video
) -> None:
    film = video("slide")
    async with running(stores.fresh_url("sqlite"), tmp_path) as stack:
        video_id = await stack.added(film.path)
        await stack.over(video_id)
        before = (await stack.client.get(f"/videos/{video_id}/segments")).json()
        assert before["segments"]
        for stage, count in (("segment_index", 5), ("ocr", 7)):
            started_job = await stack.client.post(f"/videos/{video_id}/again", json={"stage": stage})
            assert started_job.status_code == 202, started_job.text
            async for _ in stack.live.engine.watch(started_job.json()["job_id"]):
                pass
            assert (await _quiet(stack))["status"] == "ready"
            assert (await stack.client.get(f"/videos/{video_id}/segments")).json() == before
            assert len(await jobs_of(stack)) == count


async def _quiet(stack: Stack) -> dict[str, Any]:
    """Return the only video after all its jobs ended."""
    while True:
        query = JobQuery(statuses=(Status.QUEUED, Status.RUNNING))
        if not (await stack.live.engine.find(query)).jobs:
            video: dict[str, Any] = (await stack.client.get("/videos")).json()["videos"][0]
            return video
